"""``rlm-kernel export`` and ``replay``: write a session as a notebook, and rerun a notebook."""

from __future__ import annotations

import difflib
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import ask
from rlm_ipc.displays import printable
from rlm_ipc.errors import KernelError, ToolFailed
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_ipc.session_requests import ShowRecord, ShowRunsBelow
from rlm_mcp.cli.completion import policy_option, session_choices
from rlm_mcp.cli.output import FAILED, JsonFlag, console, counted, interruptible, show
from rlm_mcp.errors import ClientFault, WrongUsage

if TYPE_CHECKING:
    from rlm_ipc.session_record import RecordedCell, RecordedContext, RecordedQuery, SessionRecord
    from rlm_mcp.cli.trees import Difference
    from rlm_mcp.formats.notebook import CodeCell, Notebook


def export(
    session: Annotated[str, typer.Argument(help="Session to export.", autocompletion=session_choices)],
    file: Annotated[
        Path | None, typer.Argument(dir_okay=False, help="FILE.ipynb, FILE.md or FILE.jsonl; default: SESSION.ipynb.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Export a session as an executed notebook, as Markdown, or as JSON lines for trajectory viewers.

    Example: `rlm-kernel export work work.ipynb`
    """
    path = file or default_file(session)
    if path.suffix not in _SUFFIXES:
        raise WrongUsage(f"the format of {path} is unknown; the name must end in .ipynb, .md or .jsonl")
    record = record_of(session)
    write(path, as_text(record, path.suffix))
    data = {"exported": session, "file": str(path), "policy": record.policy, "cells": len(record.cells)}
    show(data, as_json, lambda: console.print(f"wrote {counted(len(record.cells), 'cell')} to {path}", markup=False))


_SUFFIXES = (".ipynb", ".md", ".jsonl")


def as_text(record: SessionRecord, suffix: str = ".ipynb") -> str:
    """Return a session as the text of a file with this suffix: a notebook, Markdown, or JSON lines."""
    if suffix == ".jsonl":
        from rlm_mcp.formats.trajectory import as_json_lines

        return as_json_lines(record, ask(ShowRunsBelow(record.session), start=True).runs)
    from rlm_mcp.formats import notebook

    return (notebook.as_markdown if suffix == ".md" else notebook.as_text)(record, time.time())


def is_export(path: Path, record: SessionRecord) -> bool:
    """Tell whether a file is an export of the session to which no cells were added."""
    from rlm_mcp.formats import notebook

    try:
        return notebook.is_export(path, record)
    except ClientFault:
        return False


def default_file(session: str) -> Path:
    """Return the notebook's file in the working directory."""
    return Path(f"{session.replace(os.sep, '_')}.ipynb")


def write(path: Path, text: str) -> None:
    """Write a file; raises ClientFault on failure."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ClientFault(f"{path} cannot be written ({error.strerror}); name another file") from error


def record_of(session: str, last: int | None = None) -> SessionRecord:
    """Return the record of a session; raises DaemonRefused if it never existed."""
    return ask(ShowRecord(session, last), start=True)


# --- replay ---------------------------------------------------------------------------------------


@dataclass
class Compared:
    """A cell in the export and in the replay; ``status`` and ``output`` are pairs."""

    cell: int
    code: str
    status: tuple[str, str]
    output: tuple[str, str]
    same: bool = field(init=False)

    def __post_init__(self) -> None:
        self.same = self.status[0] == self.status[1] and self.output[0] == self.output[1]


@dataclass(frozen=True)
class ReplayedText:
    """A text of the exported session; ``problem`` says why the replay has a different one or none."""

    name: str
    same: bool
    problem: str = ""


def replay(
    file: Annotated[
        Path, typer.Argument(help="A notebook of `rlm-kernel export`, or a .json file of `rlm-kernel tree --export`.")
    ],
    policy: Annotated[
        str | None, policy_option("Run under this policy; default: RLM_KERNEL_POLICY, else `default`.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Rerun an exported notebook or tree in a new session and report differences. Exit code 1: something differs.

    Example: `rlm-kernel replay work.ipynb`
    """
    if file.suffix == ".json":
        _replay_tree(file, policy, as_json=as_json)
        return
    from rlm_mcp.formats.notebook import read

    notebook = read(file)
    rules = policy or os.environ.get("RLM_KERNEL_POLICY") or "default"
    again = _Replay(f"replay-{secrets.token_hex(4)}", rules)
    with interruptible("the replay was stopped, and its session has ended"), closing(again):
        # Output that was too long to show is kept as a text; the rerun cell creates it again.
        contexts = [context for context in notebook.contexts if context.origin != "output"]
        texts = [again.load(context) for context in contexts]
        cells = [again.run(number, cell) for number, cell in enumerate(notebook.code, 1)]
    outcomes = [item.same for item in texts] + [item.same for item in cells]
    same = all(outcomes)
    data = {
        "file": str(file),
        "same": same,
        "policy": rules,
        "exported_policy": notebook.policy,
        "contexts": [asdict(text) for text in texts],
        "cells": [asdict(cell) for cell in cells],
    }
    show(data, as_json, lambda: _print_replay(notebook, rules, texts, cells, outcomes.count(False)))
    if not same:
        raise typer.Exit(FAILED)


def _replay_tree(file: Path, policy: str | None, *, as_json: bool) -> None:
    from rlm_mcp.cli.trees import read_tree, replay_tree

    record = read_tree(file)
    ran, different = replay_tree(record, policy)
    data = {"file": str(file), "same": not different, "frames": len(record.frames), "cells": ran}
    show(
        data | {"differences": [asdict(one) for one in different]}, as_json, lambda: _print_differences(data, different)
    )
    if different:
        raise typer.Exit(FAILED)


def _print_differences(data: JsonObject, different: Sequence[Difference]) -> None:
    for one in different:
        print(f"{one.frame} {printable(one.what)}: was {printable(one.then)!r}, is {printable(one.now)!r}")
    print(f"{data['frames']} frames, {data['cells']} cells, {len(different)} differences")


_LEAVING = ("exit", "exit()", "quit", "quit()")
"""Cells by which a person left a console. Without a console they are errors."""


class _Replay:
    """A new session in which the cells of a notebook are rerun in order."""

    def __init__(self, session: str, policy: str) -> None:
        self._session = session
        self._policy = policy
        self._seen = 0
        # Open the session before its record is needed, and fail here if the policy does not exist.
        self._call("status")

    def close(self) -> None:
        """End the session, unless the daemon has died."""
        with suppress(KernelError):
            self._call("end_session")

    def load(self, context: RecordedContext) -> ReplayedText:
        """Load a text from its original paths, and unload it again if it differs."""
        if not context.paths and self._held(context.name) == context.digest:
            return ReplayedText(context.name, True)  # the table of a folder's files, which was loaded with the folder
        if not context.paths:
            return ReplayedText(context.name, False, f"it was not loaded from files ({context.origin})")
        paths = context.paths[0] if len(context.paths) == 1 else list(context.paths)
        try:
            self._call("load_context", name=context.name, path=paths, content_type=context.type)
        except ToolFailed as error:
            return ReplayedText(context.name, False, str(error))
        if self._held(context.name) == context.digest:
            return ReplayedText(context.name, True)
        self._call("unload", name=context.name)
        return ReplayedText(context.name, False, f"{', '.join(context.paths)} has changed since the export")

    def _held(self, name: str) -> str | None:
        """Return the digest of the session's text with this name."""
        return next((text.digest for text in record_of(self._session, 1).contexts if text.name == name), None)

    def run(self, number: int, cell: CodeCell) -> Compared:
        """Run a cell, and answer its queries with the recorded answers."""
        from rlm_mcp.formats.notebook import CodeCell, code_cell

        if cell.status == "ok" and cell.source.strip() in _LEAVING:
            return Compared(number, cell.source, ("ok", "ok"), (cell.text, cell.text))
        try:
            self._call("eval_code", code=cell.source)
            refused = ""
        except ToolFailed as error:
            refused = str(error)
        entry = self._written()
        if entry is None:
            return Compared(number, cell.source, (cell.status, "refused"), (cell.text, refused))
        self._answer(entry.queries, cell.queries)
        now = CodeCell.read(code_cell(entry))
        return Compared(number, cell.source, (cell.status, now.status), (cell.text, now.text))

    def _written(self) -> RecordedCell | None:
        """Return the journal's entry for the cell that has just run, or None if it was not run."""
        entry = next(iter(record_of(self._session, 1).cells), None)
        if entry is None or entry.number == self._seen:
            return None
        self._seen = entry.number
        return entry

    def _answer(self, asked: Sequence[RecordedQuery], recorded: Sequence[RecordedQuery]) -> None:
        unused = [query for query in recorded if query.answer is not None or query.error is not None]
        answers: JsonObject = {}
        for query in asked:
            match = next((one for one in unused if one.prompt == query.prompt), None)
            if match is not None:
                unused.remove(match)
                answers[query.id] = match.answer if match.answer is not None else {"error": match.error}
        if answers:
            self._call("answer_queries", answers=answers)

    def _call(self, tool: str, **arguments: Any) -> JsonObject:
        return call_tool(tool, arguments, session=self._session, policy=self._policy)


def _print_replay(
    notebook: Notebook, policy: str, texts: list[ReplayedText], cells: list[Compared], different: int
) -> None:
    recorded = notebook.policy
    if recorded and recorded != policy:
        notice = f"the session ran under the policy {printable(recorded)}, the replay under {policy}"
        print(f"{notice}; if you trust this file, use --policy {printable(recorded)}")
    for text in texts:
        print(f"text {printable(text.name)}: {'same' if text.same else 'differs: ' + printable(text.problem)}")
    for cell in cells:
        print(f"cell {cell.cell}: {'same' if cell.same else 'differs'}")
        if cell.status[0] != cell.status[1]:
            print(f"    status was {printable(cell.status[0])}, is {printable(cell.status[1])}")
        then, now = (text.splitlines() for text in cell.output)
        for line in list(difflib.unified_diff(then, now, lineterm="", n=0))[2:]:
            print(f"    {printable(line)}")
    differ = f"{different} {'differs' if different == 1 else 'differ'}"
    print(f"{counted(len(texts), 'text')}, {counted(len(cells), 'cell')}, {differ}")
