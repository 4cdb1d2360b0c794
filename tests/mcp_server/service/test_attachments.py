"""Attachments: a live session in Jupyter's own front ends, which may do with it what its policy says.

Never end it.
"""

import asyncio
import itertools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_core.paths import jupyter_data_dir
from typer.testing import CliRunner
from waiting import PROGRAM_SECONDS, wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.attachment_requests import AddAttachment, AttachmentKind, ListAttachments, RevokeAttachment
from rlm_ipc.daemon_connection import DaemonConnection, ask
from rlm_ipc.outcomes import NEW_POLICY
from rlm_ipc.session_requests import ListSessions, ShowRecord
from rlm_kernel.jupyter import kernelspecs
from rlm_mcp.cli.app import app
from rlm_memory.store import Store

pytestmark = pytest.mark.usefixtures("daemon")
SECONDS = 60
_NUMBERS = itertools.count()


def agent(session: str, code: str, policy: str | None = None) -> Any:
    """Run a cell as an agent does; its value as text."""
    return call_tool("eval_code", {"code": code}, session=session, policy=policy).get("result")


def spec_of(session: str, mode: str = "execute") -> str:
    """The name by which Jupyter lists a session, looked up as every front end does."""
    name = kernelspecs.spec_name(session, mode)
    assert name in KernelSpecManager().find_kernel_specs()
    return name


@contextmanager
def opened(name: str, **options: Any) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A session, opened by its kernelspec as a front end opens a kernel, and shut down as one does.

    Over sockets in a folder: of ports, a front end chooses some that are free, and somebody else may take them first.
    """
    if "transport" not in options:
        folder = Path(os.environ["RLM_KERNEL_RUNTIME_DIR"]).parent
        options |= {"transport": "ipc", "ip": str(folder / f"k{next(_NUMBERS)}")}
    manager = KernelManager(kernel_name=name, **options)
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        yield manager, client
    finally:
        client.stop_channels()
        if manager.has_kernel:
            manager.shutdown_kernel()


def shown(client: BlockingKernelClient, code: str) -> tuple[dict[str, Any], str]:
    """Run a cell in a front end: the content of its reply, and the text that it shows."""
    texts: list[str] = []

    def keep(message: dict[str, Any]) -> None:
        content = message["content"]
        texts.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

    reply = client.execute_interactive(code, output_hook=keep, timeout=SECONDS)
    return reply["content"], "".join(texts)


def begin(client: BlockingKernelClient, code: str) -> str:
    """Start a cell that prints, and return its id once it runs."""
    asked: str = client.execute(code)
    wait_for(client, "stream")
    return asked


def wait_for(client: BlockingKernelClient, kind: str) -> dict[str, Any]:
    """Pass over what is published until a message of that kind comes."""
    while True:
        message: dict[str, Any] = client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == kind:
            return message


def reply_to(client: BlockingKernelClient, asked: str) -> dict[str, Any]:
    """The content of the reply to a request; a client that had to wait for its kernel has others that come late."""
    while True:
        message: dict[str, Any] = client.get_shell_msg(timeout=SECONDS)
        if message["parent_header"]["msg_id"] == asked:
            return message["content"]  # type: ignore[no-any-return]


def interrupt_and_wait(client: BlockingKernelClient) -> None:
    """Interrupt the kernel; when this returns the session has taken it."""
    client.control_channel.send(client.session.msg("interrupt_request"))
    while client.get_control_msg(timeout=SECONDS)["msg_type"] != "interrupt_reply":
        pass


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_a_front_end_sees_and_changes_what_the_agent_has(transport: str, isolation: Any) -> None:
    """K-29: Jupyter lists the session by itself; both sides share its variables; the journal names the attachment."""
    session = f"shared-{transport}"
    agent(session, "found = 41")
    options = {"transport": transport, **({"ip": str(isolation.root / "k")} if transport == "ipc" else {})}
    with opened(spec_of(session), **options) as (_, client):
        reply, text = shown(client, "print('seen')\nfound + 1")
        assert (reply["status"], text) == ("ok", "seen\n42")
        shown(client, "found = 'changed by a person'")
        (attachment,) = [row for row in ask(ListAttachments(), start=True).attachments if row.session == session]
        assert attachment.open == 1
    assert agent(session, "found") == "'changed by a person'"
    with DaemonConnection(ShowRecord(session=session)) as control:
        record = control.reply
    assert [cell.author for cell in record.cells] == ["agent", "notebook", "notebook", "agent"]
    assert [cell.attachment for cell in record.cells] == [
        None,
        attachment.attachment,
        attachment.attachment,
        None,
    ]
    assert [note.event for note in record.attachments] == ["opened", "closed"]


def test_restart_exit_and_shutdown_lose_nothing() -> None:
    """K-29: whatever a front end does to its kernel, only the attachment closes."""
    agent("kept", "found = 1")
    with opened(spec_of("kept")) as (manager, client):
        manager.restart_kernel()
        client.wait_for_ready(timeout=SECONDS)
        assert shown(client, "found")[1] == "1"
        shown(client, "exit")
        shown(client, "quit()")
        assert shown(client, "found")[1] == "1"
        manager.shutdown_kernel()
        assert not manager.is_alive()
    assert agent("kept", "found") == "1"


def test_a_front_end_that_is_killed_takes_only_its_own_cell_along(gone: Any) -> None:
    """The relay of a front end that crashed ends; what it ran is interrupted, so that the agent need not wait."""
    agent("crash", "found = 1")
    script = (
        "import os, sys; from jupyter_client.manager import start_new_kernel;"
        "km, kc = start_new_kernel(kernel_name=sys.argv[1]); kc.execute('print(1)\\nwhile True: pass');"
        "[0 for _ in iter(lambda: kc.get_iopub_msg(timeout=60)['msg_type'], 'stream')];"
        "print(km.provisioner.pid, flush=True); os._exit(1)"
    )
    command = [sys.executable, "-c", script, spec_of("crash")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    relay = int(done.stdout)
    assert agent("crash", "found") == "1"
    asyncio.run(gone(relay))


@contextmanager
def agent_at_work(session: str, policy: str | None = None) -> Iterator[Path]:
    """While the agent's cell runs; it ends when the file that is given here exists, and then returns 'done'."""
    go_on = Path(os.environ["RLM_KERNEL_RUNTIME_DIR"]).parent / f"go-on-{session}"
    answers: list[Any] = []
    code = f"import time, os\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.01)\n'done'"
    work = threading.Thread(target=lambda: answers.append(agent(session, code, policy)))
    work.start()
    wait_until(lambda: _state(session) == "busy")
    try:
        yield go_on
    finally:
        go_on.touch()
        work.join(SECONDS)
    assert answers == ["'done'"]


def _state(session: str) -> str:
    with DaemonConnection(ListSessions()) as control:
        return next(row.kernel for row in control.reply.sessions if row.session == session)


def test_a_session_that_runs_a_cell_can_be_opened_and_its_cell_is_not_interrupted() -> None:
    """K-29: the front end is ready at once; its interrupt and its shutdown reach its own cells only."""
    agent("busy", "1", "trusted")
    with agent_at_work("busy", "trusted") as go_on, opened(spec_of("busy")) as (_, client):
        interrupt_and_wait(client)
        asked = client.execute("'mine'")
        go_on.touch()
        assert reply_to(client, asked)["status"] == "ok"


def test_an_interrupt_ends_a_front_ends_own_cells_that_wait() -> None:
    """At once: the agent's cell may run for minutes, and nobody could take back what is behind it."""
    agent("behind", "1", "trusted")
    with agent_at_work("behind", "trusted"), opened(spec_of("behind")) as (_, client):
        asked = [client.execute("began = True"), client.execute("began = True")]
        interrupt_and_wait(client)
        replies = [reply_to(client, one) for one in asked]
        assert [(reply["ename"], reply["evalue"]) for reply in replies] == 2 * [
            ("KeyboardInterrupt", "the cell was interrupted before it began")
        ]
    assert agent("behind", "'began' in dir()") == "False"


def test_a_front_end_interrupts_its_own_cell() -> None:
    """KeyboardInterrupt, and the session goes on."""
    agent("own", "found = 1")
    with opened(spec_of("own")) as (manager, client):
        asked = begin(client, "print('on')\nwhile True: pass")
        manager.interrupt_kernel()
        assert reply_to(client, asked)["ename"] == "KeyboardInterrupt"
    assert agent("own", "found") == "1"


def test_a_policy_may_let_front_ends_interrupt_the_agent_and_begin_anew(isolation: Any) -> None:
    """attachments.interrupt: any reaches the agent's cell, but a shutdown does not; attachments.restart.

    Fresh empties it.
    """
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "open-attachments.yaml").write_text("extends: default\nattachments: {interrupt: any, restart: fresh}\n")
    agent("loose", "found = 1", "open-attachments")
    with opened(spec_of("loose")) as (manager, client):
        running = threading.Thread(target=lambda: agent("loose", "print('on')\nwhile True: pass", "open-attachments"))
        running.start()
        wait_for(client, "stream")
        manager.interrupt_kernel()
        running.join(SECONDS)
        assert not running.is_alive()
        assert shown(client, "found")[1] == "1"
        manager.restart_kernel()
        client.wait_for_ready(timeout=SECONDS)
        assert shown(client, "found")[0]["ename"] == "NameError"


def test_an_attachment_that_watches_shows_everything_and_runs_nothing() -> None:
    """K-29: read-only: cells, completions and input are refused with a reason; the agent's output is there."""
    agent("seen", "found = 1")
    added = ask(AddAttachment("seen", AttachmentKind.WATCH), start=True)
    assert added.kernelspec == spec_of("seen", "watch")
    with opened(added.kernelspec) as (_, client):
        reply, _ = shown(client, "found = 2")
        assert (reply["status"], reply["ename"]) == ("error", "ReadOnlyAttachment")
        assert client.complete("fou", reply=True, timeout=SECONDS)["content"]["status"] == "error"
        call_tool("eval_code", {"code": "print('seen by all', found)"}, session="seen")
        assert wait_for(client, "stream")["content"]["text"] == "seen by all 1\n"


def test_a_front_end_is_told_who_has_ended_its_session() -> None:
    """Below the cell that was run last, and by every cell after that, a restart included; it is not called dead."""
    agent("ending", "found = 1")
    with opened(spec_of("ending")) as (manager, client):
        asked = client.execute("found")
        assert reply_to(client, asked)["status"] == "ok"
        call_tool("end_session", {}, session="ending")
        told = wait_for(client, "stream")
        assert told["parent_header"]["msg_id"] == asked
        assert "this session has ended (an agent ended it with end_session" in told["content"]["text"]
        for _ in range(2):
            reply, _ = shown(client, "found")
            assert reply["ename"] == "KernelGone"
            assert "this session has ended (an agent ended it with end_session" in reply["evalue"]
            assert manager.is_alive()
            manager.restart_kernel()
            client.wait_for_ready(timeout=SECONDS)


def test_a_front_end_reads_that_its_session_has_another_policy() -> None:
    """The variables are gone, but the session has not ended: whoever chooses its kernel again comes back to it."""
    agent("stricter", "found = 1")
    with opened(spec_of("stricter")) as (_, client):
        asked = client.execute("found")
        assert reply_to(client, asked)["status"] == "ok"
        assert CliRunner().invoke(app, ["policy", "apply", "stricter", "strict"]).exit_code == 0
        told = wait_for(client, "stream")["content"]["text"]
        assert told == f"{NEW_POLICY}\n"
        reply, _ = shown(client, "found")
        assert (reply["ename"], reply["evalue"]) == ("KernelGone", told.strip())
    with opened(spec_of("stricter")) as (_, client):
        assert shown(client, "found")[0]["ename"] == "NameError"


def test_a_cell_that_runs_when_its_session_ends_gets_an_answer() -> None:
    """Else a notebook would show it as running for ever."""
    agent("running", "found = 1")
    with opened(spec_of("running")) as (_, client):
        asked = begin(client, "print('on')\nwhile True: pass")
        assert CliRunner().invoke(app, ["end", "running", "--yes"]).exit_code == 0
        reply = reply_to(client, asked)
        assert reply["status"] == "error", reply


def test_a_revoked_attachment_closes_at_once_and_opens_no_more() -> None:
    """K-29: the front end is shut out, and says so; the session lives; another attachment can be made."""
    agent("revoked", "found = 1")
    name = spec_of("revoked")
    with opened(name) as (_, client):
        (attachment,) = [
            row.attachment for row in ask(ListAttachments(), start=True).attachments if row.session == "revoked"
        ]
        kept = kernelspecs.key_file(attachment).read_text()
        assert ask(RevokeAttachment(attachment), start=True).closed == 1
        assert "the attachment was revoked" in shown(client, "found")[0]["evalue"]
        assert name not in KernelSpecManager().find_kernel_specs()
    agent("revoked", "found")
    assert name not in KernelSpecManager().find_kernel_specs()
    kernelspecs.publish(attachment, "revoked", "execute", kept)  # a copy that somebody has made
    failed = start_relay(attachment, "-f", "no-matter")
    assert "revoked" in failed.communicate(timeout=SECONDS)[1]
    ask(AddAttachment("revoked", AttachmentKind.EXECUTE), start=True)
    with opened(name) as (_, client):
        assert shown(client, "found")[1] == "1"


def start_relay(attachment: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-P", "-m", "rlm_kernel.jupyter.bridge", "--attachment", attachment, *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_another_key_opens_nothing() -> None:
    """An attachment's key is its own: that of another one is refused, and the attempt is on record."""
    agent("locked", "1")
    agent("other", "1")
    locked, other = (
        next(r.attachment for r in ask(ListAttachments(), start=True).attachments if r.session == s)
        for s in ("locked", "other")
    )
    assert kernelspecs.key_file(locked).stat().st_mode & 0o777 == 0o600
    kernelspecs.key_file(locked).write_text(kernelspecs.key_file(other).read_text())
    failed = start_relay(locked, "-f", "no-matter")
    assert "the key of the attachment is wrong" in failed.communicate(timeout=SECONDS)[1]
    with DaemonConnection(ShowRecord(session="locked")) as control:
        assert [note.event for note in control.reply.attachments] == ["refused"]


def listens(port: int) -> bool:
    """Say whether somebody takes connections at a loopback port."""
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_the_connection_file_may_be_named_as_vs_code_does(isolation: Any) -> None:
    """--f=FILE, and no -f; an interrupt that comes as a signal reaches the cell."""
    agent("vscode", "found = 1")
    path, _ = write_connection_file(str(isolation.root / "vscode.json"))
    (attachment,) = [
        row.attachment for row in ask(ListAttachments(), start=True).attachments if row.session == "vscode"
    ]
    relay = start_relay(attachment, f"--f={path}")
    wait_until(lambda: listens(json.loads(Path(path).read_text())["hb_port"]))
    client = BlockingKernelClient()
    client.load_connection_file(path)
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        asked = begin(client, "print('on')\nwhile True: pass")
        relay.send_signal(signal.SIGINT)
        assert reply_to(client, asked)["ename"] == "KeyboardInterrupt"
    finally:
        client.stop_channels()
        relay.terminate()
        relay.communicate(timeout=SECONDS)


def test_who_saves_is_told_that_a_notebooks_cell_runs() -> None:
    """The saving waits for its end, as for that of an agent's cell."""
    agent("saved", "found = 1")
    with opened(spec_of("saved")) as (manager, client):
        begin(client, "print('on')\nwhile True: pass")
        command = [sys.executable, "-P", "-m", "rlm_mcp", "save", "saved"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as saving:
            assert saving.stderr is not None
            assert "the session is running a cell" in saving.stderr.readline()
            manager.interrupt_kernel()
            out, _ = saving.communicate(timeout=SECONDS)
    assert "saved: saved" in out


def test_a_person_answers_what_code_waits_for() -> None:
    """K-23: `run` tells what waits, and the command by which it is answered and goes on."""
    agent("asks", "1", "recursive")
    asked = CliRunner().invoke(app, ["run", "--session", "asks", "print(llm_query('Why?'))"])
    assert asked.exit_code == 0
    assert "Why?" in asked.stderr
    told = asked.stderr.rpartition("the code is waiting for it; answer with: rlm-kernel ")[2]
    wrong = CliRunner().invoke(app, ["answer", "q_999", "So.", "--session", "asks"])
    assert (wrong.exit_code, "q_999" in wrong.stderr) == (1, True)
    answered = CliRunner().invoke(app, [{"TEXT": "Because."}.get(word, word) for word in told.split()])
    assert (answered.exit_code, answered.stdout) == (0, "Because.\n"), answered.stderr


def test_a_session_is_listed_for_as_long_as_it_lives() -> None:
    """No entry is left of a session that has ended, nor is the key."""
    agent("brief", "1")
    name = spec_of("brief")
    (attachment,) = [row.attachment for row in ask(ListAttachments(), start=True).attachments if row.session == "brief"]
    call_tool("end_session", {}, session="brief")
    assert name not in KernelSpecManager().find_kernel_specs()
    assert not kernelspecs.key_file(attachment).exists()


def test_entries_of_a_deleted_state_folder_go_and_those_of_another_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else would remove them: the daemon that listed those sessions knows of none any more."""
    agent("here", "1")
    other = tmp_path / "elsewhere"
    other.mkdir(mode=0o700)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("RLM_KERNEL_STATE_DIR", str(other))
        kernelspecs.publish("0" * 12, "there", "execute", "key")
        there = kernelspecs.spec_name("there", "execute")
    kernelspecs.sweep()
    assert there in KernelSpecManager().find_kernel_specs()
    shutil.rmtree(other)
    kernelspecs.sweep()
    assert there not in KernelSpecManager().find_kernel_specs()
    assert spec_of("here")


def test_a_policy_may_keep_front_ends_out(isolation: Any) -> None:
    """attachments.mode: none lists nothing and refuses an attachment; watch permits no attachment that executes."""
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    for mode in ("none", "watch"):
        (folder / f"attachments-{mode}.yaml").write_text(f"extends: default\nattachments: {{mode: {mode}}}\n")
        agent(f"closed-{mode}", "1", f"attachments-{mode}")
        with pytest.raises(Exception, match=f"attachments.mode: {mode}"):
            ask(AddAttachment(f"closed-{mode}", AttachmentKind.EXECUTE), start=True)
    listed = KernelSpecManager().find_kernel_specs()
    assert kernelspecs.spec_name("closed-none", "execute") not in listed
    assert kernelspecs.spec_name("closed-watch", "watch") in listed


def test_nbclient_and_the_console_open_a_live_session() -> None:
    """K-29: stock programs find the session by name; both leave it as alive as it was."""
    agent("stock", "found = 20")
    name = spec_of("stock")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in ("found += 1", "found")])
    nbclient.NotebookClient(notebook, kernel_name=name, timeout=SECONDS).execute()
    assert notebook.cells[1].outputs[0]["data"]["text/plain"] == "21"
    command = [sys.executable, "-m", "jupyter_console", "--kernel", name, "--simple-prompt"]
    typed = "print('console', found)\nexit\n"
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    assert "console 21" in done.stdout
    assert agent("stock", "found") == "21"


RICH = """import pandas as pd, matplotlib.pyplot as plt
display(pd.DataFrame({'a': [17]}))
plt.plot([1, 4])
plt.show()"""


HUGE = 72_000_000
"""More characters than may wait for a front end; a message of an error has its text twice."""


def test_the_beginning_of_a_huge_value_is_shown() -> None:
    """A page of JupyterLab stands still over all of a text, and its attachment closed over it."""
    agent("large", f"text = 'ab' * {HUGE // 2}")
    with opened(spec_of("large")) as (_, client):
        for code in ("text", "[text]", "display(text)"):
            reply, text = shown(client, code)
            assert reply["status"] == "ok"
            assert "abab" in text
            shown_text, cut, _ = text.partition("\n[cut: the first 1,000,000 of 72,000,0")
            assert (len(shown_text), bool(cut)) == (1_000_000, True)  # cut alike, whatever the value is
        assert shown(client, "'x' * 999_998")[1] == repr("x" * 999_998)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (f"display({{'text/plain': 'x' * {HUGE}}}, raw=True)", "ok", "[not shown: the output is over 32 MiB"),
        (f"raise ValueError('x' * {HUGE // 2})", "error", "[not shown: the output is over 32 MiB"),
    ],
    ids=["display", "error"],
)
def test_what_is_too_large_to_be_shown_leaves_the_front_end_its_session(code: str, status: str, said: str) -> None:
    """Its attachment closed over it: every later cell said that the kernel is gone."""
    agent("too-large", "found = 41")
    with opened(spec_of("too-large")) as (_, client):
        reply, text = shown(client, code)
        assert (reply["status"], said in text) == (status, True), (str(reply)[:300], text[:300])
        assert shown(client, "found + 1")[1] == "42"


def test_a_huge_prompt_is_an_error_of_the_cell() -> None:
    """It was dropped on its way: the cell waited for an answer until its time was up."""
    agent("prompting", "found = 41", "trusted")
    with opened(spec_of("prompting")) as (_, client):
        reply, _ = shown(client, f"input('x' * {HUGE})")
        assert (reply["status"], reply["ename"]) == ("error", "ValueError")
        assert reply["evalue"].startswith("the prompt of input() has 72,000,000 characters, and may have at most")


def test_tables_and_pictures_reach_front_ends_and_the_exported_notebook(tmp_path: Path) -> None:
    """K-29: HTML and PNG of pandas and matplotlib, of the person's cell and of the agent's, without what could act."""
    agent(
        "rich",
        "class Evil:\n    def _repr_html_(self): return '<b onclick=steal()>bold</b><script>steal()</script>'",
        "data",
    )
    shown_data: list[dict[str, Any]] = []
    with opened(spec_of("rich")) as (_, client):
        for code in (RICH, "Evil()"):
            client.execute_interactive(
                code, timeout=SECONDS, output_hook=lambda m: shown_data.append(m["content"].get("data", {}))
            )
    agent("rich", RICH, "data")
    table, picture, evil = [data for data in shown_data if set(data) - {"text/plain"}]
    assert "<td>17</td>" in table["text/html"]
    assert picture["image/png"].startswith("iVBOR")
    assert evil["text/html"] == "<b>bold</b>"

    path = tmp_path / "rich.ipynb"
    done = CliRunner().invoke(app, ["open", "rich", "--print", "--file", str(path)])
    assert done.exit_code == 0, done.output
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == spec_of("rich")
    _, mine, hostile, theirs = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.metadata.rlm.author for cell in (mine, theirs)] == ["notebook", "agent"]
    for cell in (mine, theirs):
        html, png = [output.data for output in cell.outputs if output.output_type == "display_data"]
        assert "<td>17</td>" in html["text/html"]
        assert png["image/png"] == picture["image/png"]
    assert hostile.outputs[-1].data["text/html"] == "<b>bold</b>"


def test_open_says_what_is_missing_and_keeps_a_notebook_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an editor: its name, and every other way to the session; a person's notebook is not written over."""
    agent("ready", "1")
    path = tmp_path / "ready.ipynb"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jupyterlab", None)
    for arguments, missing in (([], "pip install jupyterlab"), (["--editor", "code"], "VS Code")):
        done = CliRunner().invoke(app, ["open", "ready", "--file", str(path), *arguments])
        assert done.exit_code == 4
        assert missing in done.stderr
        for way in (f"with the kernel {spec_of('ready')}", "pip install jupyter-console", "rlm-kernel web --open"):
            assert way in done.stderr
        assert f"`jupyter console --kernel {spec_of('ready')}`" in done.stderr
    path.write_text("mine")
    done = CliRunner().invoke(app, ["open", "ready", "--print", "--json", "--watch", "--file", str(path)])
    assert (path.read_text(), '"written": false' in done.stdout) == ("mine", True)
    assert spec_of("ready", "watch") in done.stdout
    assert CliRunner().invoke(app, ["open", "nobody", "--print"]).exit_code == 1


def test_a_developers_own_code_runs_in_a_copy_of_which_nothing_comes_back(isolation: Any) -> None:
    """K-29: plain Python where policy and person permit it, behind the walls of the system, marked in the journal."""
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "confirmable.yaml").write_text("extends: default\nattachments: {trusted: true}\n")
    agent("guarded", "found = [1]\ndef double(x):\n    return [2 * n for n in x]", "confirmable")
    agent("guarded-by-default", "1")
    run = CliRunner().invoke
    refused = run(app, ["attachments", "add", "guarded-by-default", "--trusted", "--yes"])
    assert (refused.exit_code, "attachments.trusted: false" in refused.stderr) == (1, True)
    assert run(app, ["attachments", "add", "guarded", "--trusted"], input="n\n").exit_code == 1
    assert kernelspecs.spec_name("guarded", "trusted") not in KernelSpecManager().find_kernel_specs()
    assert run(app, ["attachments", "add", "guarded", "--trusted"], input="y\n").exit_code == 0
    with opened(spec_of("guarded", "trusted")) as (_, client):
        assert shown(client, "eval('double(found)')")[1] == "[2]"
        assert shown(client, "found.append(__import__('sys'))\nfound[0] = 'changed'")[0]["status"] == "ok"
        assert shown(client, "import socket\nsocket.socket()")[0]["ename"] == "PermissionError"
        assert shown(client, "import os\nos.listdir('/root')")[0]["ename"] == "PermissionError"
        assert shown(client, "os.fork()")[0]["status"] == "error"
        assert agent("guarded", "found") == "[1]"
        refused_cell = call_tool("eval_code", {"code": "eval('1')"}, session="guarded")
        assert "CellRefused" in str(refused_cell["error"])
        assert [row.open for row in ask(ListAttachments(), start=True).attachments if row.mode == "trusted"] == [1]
    with DaemonConnection(ShowRecord(session="guarded")) as control:
        cells = control.reply.cells
    assert [cell.author for cell in cells] == ["agent", *["trusted"] * 5, "agent", "agent"]
    (attachment,) = [row.attachment for row in ask(ListAttachments(), start=True).attachments if row.mode == "trusted"]
    with opened(spec_of("guarded", "trusted")) as (_, client):
        assert shown(client, "found")[1] == "[1]"
        assert ask(RevokeAttachment(attachment), start=True).closed == 1
        assert shown(client, "found")[0]["ename"] == "KernelGone"


def test_a_notebook_without_cells_of_ones_own_is_written_anew(tmp_path: Path) -> None:
    """Who opens a session again sees what has run since; nothing that a person has written goes."""
    path = tmp_path / "again.ipynb"

    def opened() -> tuple[bool, list[str]]:
        done = CliRunner().invoke(app, ["open", "again", "--print", "--json", "--file", str(path)])
        sources = [
            "".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"
        ]
        return json.loads(done.stdout)["written"], sources

    def put_last(cell: dict[str, Any]) -> str:
        notebook = json.loads(path.read_text())
        notebook["cells"][-1] = cell
        path.write_text(json.dumps(notebook))
        return path.read_text()

    call_tool("eval_code", {"code": "first = 1"}, session="again")
    assert opened() == (True, ["first = 1"])
    call_tool("eval_code", {"code": "second = 2"}, session="again")
    assert opened() == (True, ["first = 1", "second = 2"])
    for mine in (nbformat.v4.new_code_cell("second = 3"), nbformat.v4.new_markdown_cell("My notes.")):
        text = put_last(mine)
        assert opened()[0] is False
        assert path.read_text() == text


def test_kernelspecs_go_where_jupyter_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's data folder, by Jupyter's own rule."""
    assert kernelspecs.kernels_folder() == Path(jupyter_data_dir()) / "kernels"
    for name in ("JUPYTER_DATA_DIR", "JUPYTER_PLATFORM_DIRS"):
        monkeypatch.delenv(name)
    assert kernelspecs.kernels_folder() == Path(jupyter_data_dir()) / "kernels"
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert kernelspecs.kernels_folder() == Path("/somewhere/jupyter/kernels")


def test_a_journal_of_an_older_version_opens(tmp_path: Path) -> None:
    """Columns that this version adds are there, and what was written before is kept."""
    path = tmp_path / "old.sqlite3"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("alter table journal drop column attachment")
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        assert "attachment" in {row[1] for row in connection.execute("pragma table_info(journal)")}


def test_what_is_no_attachment_is_refused() -> None:
    """A name that would lead out of the folder of keys is none."""
    with pytest.raises(ValueError, match="is not an attachment"):
        kernelspecs.key_file("../http-token")
    assert discovery.state_dir() in kernelspecs.key_file("0123456789ab").parents
