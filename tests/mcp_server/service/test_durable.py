"""`checkpoint: durable`: variables that outlive every process of ours, without anybody having saved them."""

import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import cli
from jupyter_client.blocking.client import BlockingKernelClient
from serving import kill_daemon, supervisor_client, the_daemon, the_supervisor
from session_processes import end_process, kill_with_keeper, runs
from waiting import SECONDS, wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_rows import JournalCell
from rlm_ipc.errors import ToolFailed
from rlm_ipc.session_requests import ListJournal
from rlm_ipc.variable_images import hash_of
from rlm_ipc.worker_requests import Piece
from rlm_mcp.formats.pieces import PieceFolder
from rlm_mcp.service.sessions.lasting import Lasting
from rlm_sandbox.errors import PolicyError
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.usefixtures("shared_processes")


def write_policy(name: str, extends: str = "default", **limits: float) -> Path:
    """A policy file of the user's, with these limits."""
    folder = discovery.config_dir() / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    lines = "".join(f"  {limit}: {value}\n" for limit, value in limits.items())
    path.write_text(f"extends: {extends}\ncheckpoint: durable\nlimits:\n{lines}")
    return path


@pytest.fixture
def session(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session that is saved as soon as it is idle. Those that need numpy or pandas ask for the policy `data`."""
    extends = getattr(request, "param", "default")
    write_policy(f"{extends}-at-once", extends, unsaved_seconds=0)
    monkeypatch.setenv("RLM_KERNEL_POLICY", f"{extends}-at-once")
    return f"s-{uuid.uuid4().hex}"


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> str:
    """A session that is saved after each second cell, and otherwise not for an hour."""
    write_policy("seldom", unsaved_seconds=3600, unsaved_cells=2)
    monkeypatch.setenv("RLM_KERNEL_POLICY", "seldom")
    return f"s-{uuid.uuid4().hex}"


def run(session: str, code: str) -> dict[str, Any]:
    """The answer about a cell, or the error in place of one."""
    try:
        return call_tool("eval_code", {"code": code}, session=session)
    except ToolFailed as error:
        return error.answer


def unsaved(session: str) -> dict[str, Any]:
    """What is not on disk of a session."""
    told: dict[str, Any] = call_tool("status", {}, session=session)["unsaved"]
    return told


def wait_until_saved(session: str) -> None:
    """Return when everything is on disk."""
    wait_until(lambda: unsaved(session), lambda told: told["cells"] == 0)


def end_the_machine() -> None:
    """Kill every process of ours, as a power failure does."""
    daemon = psutil.Process(the_daemon())
    end_process(daemon.pid)
    kill_with_keeper(the_supervisor())
    wait_until(lambda: not runs(daemon))


def folders() -> set[Path]:
    """The folders of the variables of all sessions."""
    return set((discovery.state_dir() / "snapshots" / "lasting").glob("*.pieces"))


def files(folder: Path) -> set[tuple[str, int]]:
    """The files there, each with its inode."""
    return {(path.name, path.stat().st_ino) for path in folder.iterdir()}


@pytest.mark.parametrize("session", ["data"], indirect=True)
def test_variables_outlive_the_machine(session: str) -> None:
    """Nobody has saved them: data, functions, and two names for one object are there again, and the answer says so."""
    assert run(session, "import numpy as np\ntable = np.arange(300_000)\nsame = table")["success"]
    assert run(session, "def total(): return int(table.sum())\nkept = 'kept'")["success"]
    wait_until_saved(session)
    end_the_machine()
    answer = run(session, "total(), kept, same is table")
    assert answer["result"] == "(44999850000, 'kept', True)", answer
    assert answer["notice"].startswith("variables are as they were saved at ")
    assert "later cell" not in answer["notice"]


def test_what_was_not_saved_in_time_is_told(seldom: str) -> None:
    """A save waits for `limits.unsaved_cells`; what later cells did is lost, and counted."""
    assert run(seldom, "n = 1")["success"]
    assert unsaved(seldom)["cells"] == 1
    assert unsaved(seldom)["since"] is not None
    assert run(seldom, "n = 2")["success"]
    wait_until_saved(seldom)
    assert run(seldom, "n = 3")["success"]
    end_the_machine()
    answer = run(seldom, "n")
    assert (answer["result"], "what 1 later cell did to them is lost" in answer["notice"]) == ("2", True), answer


def run_in_notebook(session: str, *cells: str) -> None:
    """Run cells as a person with a notebook does, and return when the journal of the session has them."""
    before = len(journal(session))
    client = BlockingKernelClient()
    client.load_connection_file(call_tool("status", {}, session=session)["kernel"]["connection_file"])
    client.start_channels()
    try:
        client.wait_for_ready(timeout=SECONDS)
        for code in cells:
            reply = client.execute_interactive(code, timeout=SECONDS)
            assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        client.stop_channels()
    wait_until(lambda: journal(session), lambda told: len(told) == before + len(cells))


def journal(session: str) -> tuple[JournalCell, ...]:
    """The cells of a session."""
    with DaemonConnection(ListJournal(session=session, last=None)) as control:
        return control.reply.cells


@pytest.mark.parametrize("session", ["data"], indirect=True)
def test_what_a_notebook_does_outlives_the_machine(session: str) -> None:
    """Its cells are saved like those of an agent, with what an agent has bound before."""
    assert run(session, "mine = [1]")["success"]
    run_in_notebook(session, "import pandas as pd\ntable = pd.DataFrame({'a': [1, 2, 3]})", "mine.append(table)")
    wait_until_saved(session)
    end_the_machine()
    answer = run(session, "int(table['a'].sum()), mine[1] is table")
    assert answer["result"] == "(6, True)", answer
    assert "later cell" not in answer["notice"]


def test_cells_of_a_notebook_that_are_not_on_disk_are_counted(seldom: str) -> None:
    """The page and `status` count them before the machine ends, and the next answer after it."""
    assert run(seldom, "n = 1")["success"]
    run_in_notebook(seldom, "n = 2")
    wait_until_saved(seldom)
    run_in_notebook(seldom, "n = 3")
    assert unsaved(seldom)["cells"] == 1
    end_the_machine()
    answer = run(seldom, "n")
    assert (answer["result"], "what 1 later cell did to them is lost" in answer["notice"]) == ("2", True), answer


def test_only_what_has_changed_is_written_again(session: str) -> None:
    """Of twelve megabytes the pieces stay the same files while something small changes, in whatever place it is."""
    others = folders()
    assert run(session, "first = 'x'\nimport random\nlarge = random.Random(1).randbytes(12 << 20)")["success"]
    wait_until_saved(session)
    (folder,) = folders() - others
    before = files(folder)
    assert run(session, "first = 'y' * 1000")["success"]
    wait_until_saved(session)
    assert len(before) >= 12
    assert len(files(folder) - before) == 2, "the piece with the small one, and the index"
    assert run(session, "del large")["success"]
    wait_until_saved(session)
    assert len(files(folder)) == 2


def test_a_crash_that_no_copy_survives_costs_no_more_than_what_is_not_on_disk(session: str) -> None:
    """While a thread runs the process cannot be copied: the newest copy is older than what is on the disk."""
    busy = "import threading, time\nkept = [1]\nstop = False\ndef spin():\n    while not stop: sum(range(1000))"
    assert run(session, busy)["success"]
    answer = run(session, "threading.Thread(target=spin, daemon=True).start()\nkept.append(2)")
    assert "checkpoint" in answer, "a running thread keeps it from being copied"
    wait_until_saved(session)
    end_process(call_tool("status", {}, session=session)["kernel"]["pid"])
    answer = run(session, "kept")
    if answer.get("error") == "kernel_died":  # the call came before the daemon had heard of the death
        answer = run(session, "kept")
    assert (answer["result"], "as they were saved at" in answer["notice"]) == ("[1, 2]", True), answer


def lost_cells(session: str) -> int:
    """How many cells the supervisor says that the kernel lacks."""
    with supervisor_client() as client:
        kernels = client.call(protocol.KERNELS, protocol.ListKernels()).kernels
    return sum(info.lost for info in kernels if info.label["session"] == session)


def test_a_crash_without_a_daemon_costs_no_more_than_what_is_not_on_disk(session: str) -> None:
    """The next daemon gives the kernel, which has gone back to an older copy, what the disk has of it."""
    busy = "import threading, time\nkept = [1]\nstop = False\ndef spin():\n    while not stop: sum(range(1000))"
    assert run(session, busy)["success"]
    assert run(session, "threading.Thread(target=spin, daemon=True).start()\nkept.append(2)")["success"]
    wait_until_saved(session)
    kernel = call_tool("status", {}, session=session)["kernel"]["pid"]
    kill_daemon()
    end_process(kernel)
    wait_until(lambda: lost_cells(session) == 1)
    answer = run(session, "kept")
    assert (answer["result"], "as they were saved at" in answer["notice"]) == ("[1, 2]", True), answer


def test_a_disk_that_cannot_be_written_is_told_and_tried_again(session: str) -> None:
    """The next answer says why; what was saved before stays; the next cell tries again."""
    others = folders()
    assert run(session, "n = 1")["success"]
    wait_until_saved(session)
    (folder,) = folders() - others
    away = folder.with_suffix(".away")
    folder.rename(away)
    folder.write_text("in the way")
    assert run(session, "n = 2")["success"]
    told = wait_until(lambda: unsaved(session), lambda told: told["reason"])
    assert told["cells"] == 1
    assert "could not be saved to disk" in run(session, "n")["notice"]
    folder.unlink()
    away.rename(folder)
    assert run(session, "n = 3")["success"]
    wait_until_saved(session)
    end_the_machine()
    assert run(session, "n")["result"] == "3"


def test_a_cell_that_waits_for_an_agent_is_no_failure(session: str) -> None:
    """While it waits nothing can be saved, and nobody is told of that; what it did is saved when it has ended."""
    assert run(session, "m = 1")["success"]
    (query,) = run(session, "n = llm_query('which?', mode='blocking')")["pending_llm_queries"]
    told = call_tool("status", {}, session=session)
    assert (told["unsaved"]["reason"], told.get("notice")) == (None, None)
    call_tool("answer_queries", {"answers": {query["id"]: "this one"}}, session=session)
    wait_until_saved(session)
    end_the_machine()
    assert run(session, "m, n")["result"] == "(1, 'this one')"


def test_a_session_that_begins_anew_does_not_come_back(session: str) -> None:
    """A restart wants no variables, and none are on the disk soon."""
    assert run(session, "n = 1")["success"]
    wait_until_saved(session)
    call_tool("restart_session", {}, session=session)
    wait_until_saved(session)
    end_the_machine()
    assert "NameError" in run(session, "n")["error"]


def test_what_was_undone_is_undone_on_the_disk(session: str) -> None:
    """A rollback changes variables like a cell."""
    assert run(session, "n = 1")["success"]
    assert run(session, "n = 2")["success"]
    call_tool("rollback", {"cells": 1}, session=session)
    wait_until_saved(session)
    end_the_machine()
    assert run(session, "n")["result"] == "1"


def test_a_session_that_ends_leaves_nothing_on_the_disk(session: str) -> None:
    """Its pieces go with its rows."""
    others = folders()
    assert run(session, "n = 1")["success"]
    wait_until_saved(session)
    assert len(folders() - others) == 1
    call_tool("end_session", {}, session=session)
    assert folders() <= others


def test_a_stopped_daemon_has_written_everything(seldom: str) -> None:
    """A stop does not wait for `limits.unsaved_seconds`."""
    assert run(seldom, "n = 7")["success"]
    cli("daemon", "stop")
    kill_with_keeper(the_supervisor())
    answer = run(seldom, "n")
    assert answer["result"] == "7", answer


def test_the_next_daemon_saves_what_one_that_died_had_not(seldom: str) -> None:
    """It knows of the cells that ran before it, and since when they wait."""
    assert run(seldom, "n = 1")["success"]
    before = unsaved(seldom)
    kill_daemon()
    after = unsaved(seldom)
    assert (after["cells"], after["since"] <= before["since"]) == (1, True)
    assert run(seldom, "n += 1")["success"]
    wait_until_saved(seldom)
    end_the_machine()
    assert run(seldom, "n")["result"] == "2"


def test_a_daemon_that_dies_while_it_saves_leaves_the_save_before(session: str) -> None:
    """Killed at many instants: what comes back is always one of the values in turn, never none and no mixture."""
    assert run(session, "n = 0\nlarge = bytearray(8 << 20)")["success"]
    wait_until_saved(session)
    for value in range(1, 6):
        assert run(session, f"n = {value}\nlarge[:] = bytes([n]) * len(large)")["success"]
        if value % 2:
            wait_until_saved(session)
        end_the_machine()
        answer = run(session, "n, large == bytes([n]) * len(large)")
        assert answer.get("result") in (f"({value}, True)", f"({value - 1}, True)"), answer
        run(session, f"n = {value}\nlarge[:] = bytes([n]) * len(large)")
        wait_until_saved(session)


@pytest.mark.anyio
async def test_what_is_being_read_is_not_removed(tmp_path: Path) -> None:
    """A kernel is given what was saved, while a save that began before its predecessor died comes to its end."""
    lasting = Lasting(tmp_path)
    save_piece(lasting.pieces(1), b"old")
    async with lasting.open(1) as saved:
        assert saved is not None
        save_piece(lasting.pieces(1), b"new")
        lasting.keep_pieces(1)
        lasting.keep_file(1)
        assert b"".join(saved.pieces()) == b"old"
    lasting.keep_pieces(1)
    async with lasting.open(1) as saved:
        assert saved is not None
        assert b"".join(saved.pieces()) == b"new"
    assert len(list(lasting.pieces(1).folder.iterdir())) == 2


def save_piece(folder: PieceFolder, data: bytes) -> None:
    """Save an image of one piece."""
    piece = Piece(len(data), hash_of(data))
    writer = folder.writer([piece])
    writer.add([piece], data)
    writer.finish(1.0, {}, ())


def test_durable_needs_a_session_that_reopens() -> None:
    """A policy under which nobody would be given what is saved is refused when it is read."""
    path = write_policy("pointless", unsaved_cells=1)
    path.write_text(f"{path.read_text()}reopen: false\n")
    with pytest.raises(PolicyError, match="durable needs reopen: true"):
        load_policy("pointless")
