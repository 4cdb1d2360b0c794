"""`rlm-kernel export` and `replay`: what ran in a session as a notebook, and that notebook run again."""

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from click.testing import Result
from jupyter_client import BlockingKernelClient
from nbclient import NotebookClient
from typer.testing import CliRunner
from waiting import SECONDS, wait_until

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.errors import ToolFailed
from rlm_ipc.session_record import RecordedCell, SessionRecord
from rlm_ipc.session_requests import ListJournal
from rlm_mcp.cli.app import app
from rlm_mcp.formats.notebook import as_markdown, as_notebook

Command = Callable[..., Result]


@pytest.fixture
def command(daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command of `rlm-kernel` on the real daemon, in a folder of the test's own, and check its exit code."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
        return done

    return run


def evaluate(session: str, *cells: str, policy: str | None = None) -> list[dict[str, Any]]:
    return [call_tool("eval_code", {"code": code}, session=session, policy=policy) for code in cells]


def exported(command: Command, session: str, folder: Path) -> nbformat.NotebookNode:
    """Export a session; the notebook is one by nbformat's own rules."""
    command("export", session)
    notebook = nbformat.read(folder / f"{session}.ipynb", as_version=nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    return notebook


def until_noted(session: str, cells: int) -> None:
    """Wait until the journal has so many cells: of one of a notebook it hears after the notebook does."""

    def noted() -> int:
        with DaemonConnection(ListJournal(session=session, last=None)) as control:
            return len(control.reply.cells)

    wait_until(noted, lambda count: count >= cells)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_a_session_becomes_an_executed_notebook(command: Command, tmp_path: Path) -> None:
    """Code, outputs, authors, times, policy and texts of agents and notebooks are in a valid notebook."""
    (tmp_path / "app.log").write_text("one\ntwo\n")
    loaded = call_tool("load_context", {"name": "log", "path": str(tmp_path / "app.log")}, session="seen")
    evaluate("seen", "print('hello')\nlog['line_count']", "print('before')\n1 / 0")
    person = BlockingKernelClient()
    person.load_connection_file(call_tool("status", {}, session="seen")["kernel"]["connection_file"])
    person.start_channels()
    person.wait_for_ready(timeout=SECONDS)
    person.execute_interactive("'mine'", timeout=SECONDS)
    person.stop_channels()
    until_noted("seen", 3)

    notebook = exported(command, "seen", tmp_path)
    first, failed, mine = code_cells(notebook)
    assert first.source == "print('hello')\nlog['line_count']"
    printed, value = first.outputs
    assert (printed.text, value.output_type, value.data) == ("hello\n", "execute_result", {"text/plain": "2"})
    assert [output.output_type for output in failed.outputs] == ["stream", "error"]
    assert failed.outputs[1].traceback[1:3] == ["  Cell 2, line 2", "    1 / 0"]
    assert (failed.outputs[1].ename, failed.outputs[1].evalue) == ("ZeroDivisionError", "division by zero")
    assert mine.outputs[0].data == {"text/plain": "'mine'"}
    assert [cell.execution_count for cell in (first, failed, mine)] == [1, 2, 3]
    assert [cell.metadata.rlm.author for cell in (first, failed, mine)] == ["agent", "agent", "notebook"]
    assert first.metadata.rlm.started_at <= first.metadata.rlm.ended_at <= failed.metadata.rlm.started_at
    about = notebook.metadata.rlm
    assert (about.session, about.policy) == ("seen", "default")
    assert [(text.name, text.size, text.line_count) for text in about.contexts] == [("log", 8, loaded["line_count"])]
    assert about.contexts[0].digest


def test_the_text_of_a_table_stands_once(command: Command, tmp_path: Path) -> None:
    """A value that has a richer form is an output with both, below what the cell printed."""
    shown = "class Table:\n    def _repr_html_(self): return '<b>rich</b>'\n    def __repr__(self): return 'plain'\n"
    evaluate("table", f"{shown}print('before plain')\nTable()", f"{shown}Table()", "print('plain')\n'plain'")
    notebook = exported(command, "table", tmp_path)
    first, alone, text = code_cells(notebook)
    printed, value = first.outputs
    assert (printed.text, value.data) == ("before plain\n", {"text/plain": "plain", "text/html": "<b>rich</b>"})
    assert [output.data for output in alone.outputs] == [{"text/plain": "plain", "text/html": "<b>rich</b>"}]
    assert (text.outputs[0].text, text.outputs[1].data) == ("plain\n", {"text/plain": "'plain'"})
    assert "3 cells under" in notebook.cells[0].source


def test_a_cell_has_one_number_everywhere(command: Command, tmp_path: Path) -> None:
    """In its traceback, the journal, the notebook and the page of Markdown; another session's cells do not count."""
    evaluate("counted", "1", "2", "3")
    evaluate("one", "def fail():\n    return {}['key']", "fail()")
    until_noted("one", 2)
    assert re.findall("^# ([0-9]+) ", command("journal", "one").stdout, re.MULTILINE) == ["1", "2"]
    first, failed = code_cells(exported(command, "one", tmp_path))
    assert (first.execution_count, failed.execution_count) == (1, 2)
    told = ["Traceback (most recent call last):", "  Cell 2, line 1", "    fail()", "  Cell 1, line 2, in fail"]
    told += ["    return {}['key']", "KeyError: 'key'"]
    assert failed.outputs[0].traceback == told
    command("export", "one", "one.md")
    text = (tmp_path / "one.md").read_text()
    assert re.findall("^## ([0-9]+) ", text, re.MULTILINE) == ["1", "2"]
    assert "\n".join(told) in text


def test_the_traceback_of_a_notebooks_cell_keeps_its_colours_and_no_more() -> None:
    """A front end shows colours; nothing else that a terminal obeys comes with them. Markdown has none."""
    hostile = "\x1b[32mCell 1, line 1\x1b[0m\x1b]0;title\x07\x1b[2J"
    cell = RecordedCell(
        7, "notebook", "x", 1.0, 2.5, "error", "KeyError: 'x'", count=1, traceback=(hostile, "KeyError: 'x'")
    )
    record = SessionRecord("s", "p", "ended", cells=(cell,))
    notebook = nbformat.from_dict(as_notebook(record, 0.0))
    nbformat.validate(notebook)
    assert code_cells(notebook)[0].outputs[0].traceback[0] == "\x1b[32mCell 1, line 1\x1b[0m]0;title[2J"
    assert "\x1b" not in as_markdown(record, 0.0)


def test_the_markdown_of_a_cell_is_html_in_its_notebook(command: Command, tmp_path: Path) -> None:
    """As front ends show it; the text of the value stays beside it."""
    evaluate("report", "from IPython.display import Markdown, display\ndisplay(Markdown('*one*'))\nMarkdown('# Two')")
    (cell,) = code_cells(exported(command, "report", tmp_path))
    assert [output.data["text/html"].strip() for output in cell.outputs] == ["<p><em>one</em></p>", "<h1>Two</h1>"]
    assert cell.outputs[1].data["text/plain"] == "# Two"


def test_a_session_whose_kernel_has_died_is_exported(command: Command, tmp_path: Path) -> None:
    """The journal outlives the kernel, and has the cell that killed it."""
    with pytest.raises(ToolFailed):
        evaluate("late", "import os; os._exit(3)", policy="trusted")
    notebook = exported(command, "late", tmp_path)
    call_tool("end_session", {}, session="late", policy="trusted")
    (cell,) = code_cells(notebook)
    assert (cell.outputs[0].ename, "exited with 3" in cell.outputs[0].evalue) == ("KernelDied", True)
    assert (notebook.metadata.rlm.policy, notebook.metadata.rlm.state) == ("trusted", "active")


def test_the_journal_does_not_command_a_terminal(command: Command) -> None:
    """A developer looks at what an agent ran: no title, no colour, no cleared screen comes with it."""
    evaluate("hostile", r"print('\x1b[2J\x1b]0;title\x07', end='')  # " + "\x1b[8m")
    shown = command("journal", "hostile").stdout
    assert "\x1b" not in shown
    assert shown.endswith("    print('\\x1b[2J\\x1b]0;title\\x07', end='')  # \\x1b[8m\n\\x1b[2J\\x1b]0;title\\x07\n")
    assert "no session nobody is known" in command("journal", "nobody", code=1).stderr


def test_a_replay_that_gives_the_same_says_so(command: Command, tmp_path: Path) -> None:
    """Texts are loaded again, queries get their answers of then, addresses do not count; no session is left."""
    (tmp_path / "app.log").write_text("one\n")
    call_tool("load_context", {"name": "log", "path": str(tmp_path / "app.log")}, session="same")
    evaluate("same", "note = llm_query('why?')\nobject()")
    call_tool("answer_queries", {"answers": {"q_000": "because"}}, session="same")
    evaluate("same", "print(note, log['lines'][0])", "import subprocess")
    command("export", "same")
    told = json.loads(command("replay", "same.ipynb", "--json").stdout)
    assert (told["same"], [text["same"] for text in told["contexts"]]) == (True, [True])
    assert [cell["output"][1].split(":")[0] for cell in told["cells"][1:]] == ["because one", "ImportRefused"]
    assert "replay-" not in command("sessions").stdout


def test_a_folder_is_replayed_with_the_list_of_its_files(command: Command, tmp_path: Path) -> None:
    """The list came with the folder, from no file; it comes with it again, and differs when the folder does."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    (folder / "b.txt").write_text("b\n")
    command("load", "docs", str(folder), "--session", "folders")
    command("run", "docs_files['line_count']", "--session", "folders")
    notebook = tmp_path / "folders.ipynb"
    command("export", "folders", str(notebook))
    assert "2 texts, 1 cell, 0 differ" in command("replay", str(notebook)).stdout
    (folder / "c.txt").write_text("c\n")
    assert "text docs_files: differs" in command("replay", str(notebook), code=1).stdout


def test_a_replay_shadows_texts_where_the_session_did(command: Command, tmp_path: Path) -> None:
    """A cell that takes the name of a text takes it again; the text is in the notebook, and in the replay."""
    (tmp_path / "app.log").write_text("one\ntwo\n")
    call_tool("load_context", {"name": "log", "path": str(tmp_path / "app.log")}, session="shadow")
    evaluate("shadow", "log = log['lines'][:1]\nprint(log)", "print(log, cite('log', 1)['text'])", "del log")
    evaluate("shadow", "print(log['line_count'])", "log = 5")
    assert [text["name"] for text in exported(command, "shadow", tmp_path).metadata.rlm.contexts] == ["log"]
    told = json.loads(command("replay", "shadow.ipynb", "--json").stdout)
    assert (told["same"], [text["same"] for text in told["contexts"]]) == (True, [True])
    assert [cell["output"][1].strip() for cell in told["cells"]] == ["['one']", "['one'] two", "", "2", ""]


def test_a_replay_says_cell_by_cell_what_differs(command: Command, tmp_path: Path) -> None:
    """A text that has changed is not taken for the old one; exit code 1, with status and output then and now."""
    path = tmp_path / "app.log"
    path.write_text("one\n")
    call_tool("load_context", {"name": "log", "path": str(path)}, session="changed")
    evaluate("changed", "1 + 1", "print(list(log['lines']))")
    command("export", "changed")
    path.write_text("two\n")
    printed = command("replay", "changed.ipynb", code=1).stdout
    assert "text log: differs" in printed
    assert "cell 1: same" in printed
    assert "cell 2: differs\n    status was ok, is error\n" in printed
    assert "-['one']" in printed
    assert "+NameError: name 'log' is not defined" in printed
    assert "two" not in printed


def test_a_replay_runs_under_the_policy_that_is_asked_for(command: Command, tmp_path: Path) -> None:
    """A notebook from elsewhere cannot choose its own rules."""
    evaluate("loose", "import subprocess; subprocess.getoutput('echo it ran')", policy="trusted")
    command("export", "loose")
    said = command("replay", "loose.ipynb", code=1).stdout
    assert "trusted, the replay under default; if you trust this file, use --policy trusted\n" in said
    command("replay", "loose.ipynb", "--policy", "trusted")


def test_a_failed_cell_stops_nobody_who_runs_the_notebook(command: Command, tmp_path: Path) -> None:
    """The session went on after it, and so does a front end that runs all cells."""
    evaluate("stumbled", "x = 1", "1 / 0", "x + 1")
    notebook = exported(command, "stumbled", tmp_path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.metadata.tags for cell in code] == [
        ["agent", "ok"],
        ["agent", "error", "raises-exception"],
        ["agent", "ok"],
    ]
    NotebookClient(notebook, kernel_name="rlm", timeout=60).execute()
    assert code[-1].outputs[0].data["text/plain"] == "2"


def test_a_replay_does_not_leave_where_a_person_has_left(command: Command, tmp_path: Path) -> None:
    """`exit` in a front end is no error; code that stops by `sys.exit()` is one, then and now."""
    sources = ["exit", "quit()", "import sys; sys.exit()"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, kernel_name="rlm", timeout=60, allow_errors=True).execute()
    nbformat.write(notebook, tmp_path / "left.ipynb")
    assert "3 cells, 0 differ" in command("replay", "left.ipynb").stdout


def test_a_notebook_that_a_front_end_has_run_is_replayed(command: Command, tmp_path: Path) -> None:
    """Streams, values and errors as Jupyter writes them are compared like our own."""
    sources = ["print('a')\n41 + 1", "import sys\nprint('b', file=sys.stderr)", "", "missing"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(notebook, kernel_name="rlm", timeout=60, allow_errors=True).execute()
    nbformat.write(notebook, tmp_path / "run.ipynb")
    assert "0 texts, 3 cells, 0 differ" in command("replay", "run.ipynb").stdout
    notebook.cells[0].outputs[-1].data["text/plain"] = "43\x1b[2J"
    nbformat.write(notebook, tmp_path / "run.ipynb")
    printed = command("replay", "run.ipynb", code=1).stdout
    assert "-43\\x1b[2J" in printed  # as text: a terminal would have cleared its screen
    assert "\x1b" not in printed


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"nbformat": 3, "cells": []}', "nbformat"),
        ("[]", "nbformat is not 4"),
        (
            '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code", "source": 1}]}',
            "cells.0",
        ),
        (
            '{"nbformat": 4, "nbformat_minor": 4, "metadata": {"rlm": {"contexts": 1}}, "cells": []}',
            "valid tuple",
        ),
    ],
)
def test_what_is_no_notebook_is_refused(command: Command, tmp_path: Path, content: str, problem: str) -> None:
    """The message names the file and the place; nothing runs."""
    (tmp_path / "bad.ipynb").write_text(content)
    said = command("replay", "bad.ipynb", code=1).stderr
    assert "bad.ipynb" in said
    assert problem in said


def test_what_cannot_be_exported_is_refused(command: Command, tmp_path: Path) -> None:
    """A session that never was, a format that we do not write, a folder that is not there."""
    assert "no session nobody is known" in command("export", "nobody", code=1).stderr
    assert ".ipynb, .md or .jsonl" in command("export", "first", "x.txt", code=2).stderr
    assert "cannot be written" in command("export", "first", "missing/x.md", code=1).stderr
    assert list(tmp_path.iterdir()) == []


def test_markdown_has_front_matter_for_programs(command: Command, tmp_path: Path) -> None:
    """YAML between dashes, then the cells with what they wrote."""
    evaluate("page", "print('hello')")
    command("export", "page", "page.md")
    _, front, text = (tmp_path / "page.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert (about["session"], about["policy"], about["cells"], about["contexts"]) == ("page", "default", 1, [])
    assert "```python\nprint('hello')\n```\n\n```text\nhello\n```" in text


def _record(status: str, output: str, *displays: dict[str, str]) -> SessionRecord:
    cell = RecordedCell(7, "agent", "x", 1.0, 2.5, status, output, displays=displays)
    return SessionRecord("s", "p", "ended", cells=(cell,))


def _dot() -> str:
    """The smallest PNG, as base64."""
    parts = {b"IHDR": struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"IDAT": zlib.compress(b"\0\0"), b"IEND": b""}
    chunks = (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts.items()
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()


def test_output_cannot_end_its_block() -> None:
    """What a cell printed is no Markdown, however many backticks it has."""
    text = as_markdown(_record("ok", "```\n# owned\n````"), 0.0)
    assert "`````text\n```\n# owned\n````\n`````" in text


def test_pictures_are_in_the_markdown_and_forged_ones_are_named() -> None:
    """Each stands where it was shown, its data at the end, where it disturbs nobody. What is no PNG is none."""
    forms = {"image/png": _dot()}, {"image/png": "bm90IG9uZQ=="}, {"image/x\n# owned": "y"}
    text = as_markdown(_record("ok", "", *forms), 0.0)
    assert "\n![Picture 1 of cell -][picture-1]\n" in text
    assert text.endswith(f"\n[picture-1]: data:image/png;base64,{_dot()}\n")
    assert "\n```text\nPicture 2 of cell - is left out: it is not a PNG\n```\n" in text
    assert re.search(r"```text\nPicture 3 of cell - is left out: [^`]*\n# owned\n```", text)
    assert text.count("data:image") == 1


def test_markdown_with_too_many_pictures_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that editors cannot open helps nobody; the notebook has all of them."""
    monkeypatch.setattr("rlm_mcp.formats.notebook.MOST_PICTURES", 200)
    text = as_markdown(_record("ok", "", *[{"image/png": _dot()}] * 3), 0.0)
    assert text.count("data:image") == 1
    assert text.count("is left out: there are too many; export a notebook") == 2


@pytest.mark.parametrize("status", ["a,b", "", "agent", "x\n# owned"])
def test_a_status_that_is_none_is_not_passed_on(status: str) -> None:
    """The word comes from the kernel's process; the notebook is valid and the page has no heading of its making."""
    record = _record(status, "")
    nbformat.validate(nbformat.from_dict(as_notebook(record, 0.0)))
    assert "## - · agent · unknown · 1.500 s" in as_markdown(record, 0.0).splitlines()


@pytest.mark.parametrize(
    ("output", "written", "error"),
    [
        ("ValueError: a\nb: c", "", ("ValueError", "a\nb: c")),
        ("note: printed\nKeyError: 'k'", "note: printed\n", ("KeyError", "'k'")),
        ("AssertionError: ", "", ("AssertionError", "")),
        ("Boom: why", "", ("Boom", "why")),
        ("…", "", ("Error", "…")),
    ],
)
def test_the_error_is_parted_from_what_was_written(output: str, written: str, error: tuple[str, str]) -> None:
    """The journal has both in one text; nothing of it is lost."""
    notebook = nbformat.from_dict(as_notebook(_record("error", output), 0.0))
    nbformat.validate(notebook)
    (cell,) = code_cells(notebook)
    assert "".join(out.text for out in cell.outputs if out.output_type == "stream") == written
    assert (cell.outputs[-1].ename, cell.outputs[-1].evalue) == error
