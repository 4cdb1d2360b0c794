"""Nothing that a supervisor had received, and not answered when it died, is left without an answer."""

import asyncio
import ctypes
import os
import platform
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jupyter_client import AsyncKernelClient
from jupyter_visits import visit
from waiting import until, wait_until

from rlm_contexts.store.store import ContextStore
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import ProcessError
from rlm_ipc.json_lines import TERMINAL
from rlm_ipc.outcomes import Ended, Loss, Lost
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.keeping.kept_gate import KeptGate
from rlm_kernel.supervisor.keeping.named_runs import ANSWER_LOST
from rlm_kernel.supervisor.keeping.session_file import STATE, SessionFile
from rlm_kernel.supervisor.running.kept_session import KeptState
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.os_wall.fork_notifier import Refused
from rlm_sandbox.policy import load_policy, without_language_wall

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(platform.system() != "Linux", reason="only Linux has the gate"),
]
_PIDFD_GETFD = 438
"""Of every machine: new calls have one number."""


def of_process(pid: int, name: str) -> int:
    """A copy of a descriptor of another process, by what it is."""
    (found, *_) = [int(path.name) for path in Path(f"/proc/{pid}/fd").iterdir() if os.readlink(path).startswith(name)]
    pidfd = os.pidfd_open(pid)
    try:
        copy = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, pidfd, found, 0)
        assert copy >= 0, os.strerror(ctypes.get_errno())
        return int(copy)
    finally:
        os.close(pidfd)


@contextmanager
def noted_last(client: SupervisorClient) -> Iterator[SessionFile]:
    """Give what the supervisor has noted of its only session, to be changed; then the supervisor is dead."""
    supervisor = client.pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)
    with closing(SessionFile(of_process(supervisor, "/memfd:session"))) as file:
        yield file
    os.kill(supervisor, signal.SIGKILL)


def _published(client: SupervisorClient) -> int:
    """How many messages the supervisor has noted of its only session."""
    assert client.pid is not None
    with closing(SessionFile(of_process(client.pid, "/memfd:session"))) as file:
        return file.published


class Dies(Exception):
    """The supervisor goes no further."""


def dies(_: Refused) -> None:
    """Stand for the instant between the receipt of an attempt and its answer."""
    raise Dies


@pytest.mark.parametrize("attempt", ["os.fork()", "os.execv('/bin/true', ['x'])"])
async def test_a_system_call_that_a_dying_supervisor_has_received_is_answered(
    own_supervisor: SupervisorClient, tmp_path: Path, told, attempt: str
) -> None:
    """Its thread would wait for ever: the system tells of it once, and only a kill ends the wait."""
    client = own_supervisor
    await client.spawn(SpawnRequest("k1", str(tmp_path)), without_language_wall(load_policy("default")))
    cell = client.execute("k1", f"print('runs')\n{told.wait}try: {attempt}\nexcept PermissionError: print('refused')")
    await until(cell.output_so_far, lambda told: "runs" in told[0])
    supervisor = client.pid
    assert supervisor is not None
    os.kill(supervisor, signal.SIGSTOP)
    memory = of_process(supervisor, "/memfd:gate")
    with closing(KeptGate(of_process(supervisor, "anon_inode:seccomp"), memory, dies)) as gate:
        told.give()
        with pytest.raises(Dies):
            wait_until(lambda: gate.answer(allow=False))
    os.close(memory)
    os.kill(supervisor, signal.SIGKILL)
    async with asyncio.timeout(60):
        result = await cell.result()
    assert (result.stdout, result.error) == ("runs\nrefused\n", None)


async def test_the_next_supervisor_knows_who_runs_a_cell(
    own_supervisor: SupervisorClient, tmp_path: Path, told
) -> None:
    """A person at a terminal does not become an agent."""
    client = own_supervisor
    await client.spawn(SpawnRequest("k1", str(tmp_path)), load_policy("default"))
    (cell,) = client.execute_all("k1", [told.wait], TERMINAL)
    await until(lambda: client.running("k1"), lambda now: now.cell is not None)
    os.kill(client.pid or 0, signal.SIGKILL)
    now = await until(lambda: client.running("k1"), lambda now: now.cell is not None)
    assert now.cell is not None
    assert now.cell.author == TERMINAL
    told.give()
    async with asyncio.timeout(60):
        assert (await cell.result()).error is None


async def test_a_cell_that_a_dying_supervisor_had_noted_and_not_sent_has_its_own_output_only(
    own_supervisor: SupervisorClient, tmp_path: Path
) -> None:
    """The kernel says the cell before again, to the next supervisor, and that was heard as said by this one."""
    client, policy = own_supervisor, replace(load_policy("default"), checkpoint="off")
    await client.spawn(SpawnRequest("k1", str(tmp_path)), policy)
    assert (
        await client.execute("k1", "for line in range(2000): print('before', line, flush=True)\n'before'").result()
    ).error is None
    noted = CellRequest.of_caller("print('this')", True, asyncio.get_running_loop().create_future(), "mine")
    with noted_last(client) as file:
        file.begin(file.running[0] + 1, noted.kept(), 0.0, 0.0)
    async with asyncio.timeout(60):
        result = await client.call(protocol.EXECUTE, protocol.Execute("k1", "print('this')", run="mine"))
    assert (result.stdout, result.result, result.error) == ("this\n", None, None)


async def test_a_cell_that_a_dying_supervisor_had_noted_without_its_name_runs_once(
    own_supervisor: SupervisorClient, tmp_path: Path
) -> None:
    """Its caller may have lost the answer of the next supervisor as well, and asks again when other cells have run."""
    client = own_supervisor
    await client.spawn(SpawnRequest("k1", str(tmp_path)), load_policy("default"))
    assert (await client.execute("k1", "n = 0").result()).error is None
    noted = CellRequest.of_caller("n += 1", True, asyncio.get_running_loop().create_future(), "mine")
    with noted_last(client) as file:
        file.begin(file.running[0] + 1, noted.kept(), 0.0, 0.0)
    async with asyncio.timeout(60):
        for _ in range(2):  # the first may be queued while the answer is still to come, and that is told then
            assert (await client.execute("k1", "n").result()).result == "1"
        with pytest.raises(ProcessError, match=ANSWER_LOST):
            await client.call(protocol.EXECUTE, protocol.Execute("k1", "n += 1", run="mine"))
        assert (await client.execute("k1", "n").result()).result == "1"


async def _noted(client: SupervisorClient) -> tuple[KeptState, tuple[int, bool, bool, int]]:
    """What the supervisor has noted of its only session, once it has done something that changes nothing."""
    await client.variables("k1")
    with closing(SessionFile(of_process(client.pid or 0, "/memfd:session"))) as file:
        state, cells = file.read(STATE, KeptState), file.cells
    alive = (state.live, *(copy.key for copy in state.copies))  # a copy that was replaced may still be ending
    return replace(state, attached={key: state.attached.get(key, {}) for key in alive}), cells


@pytest.mark.parametrize("mode", ["strict", "off"])
async def test_a_session_is_the_same_to_the_next_supervisor(
    own_supervisor: SupervisorClient, tmp_path: Path, mode: str
) -> None:
    """Its processes and copies, the texts of each, what was refused, when it began, a loss that nobody was told of."""
    client, store = own_supervisor, ContextStore(tmp_path / "store")
    policy = replace(without_language_wall(load_policy("default")), checkpoint=mode)
    await client.spawn(SpawnRequest("k1", str(tmp_path)), policy)
    for name in ("log", "log", "notes", "gone"):
        with store.shared_text(store.put_text(name)) as text:
            await client.bind("k1", name, text, "log", {"of": name})
    await client.unbind("k1", "gone")
    await client.restart("k1")
    for code in (
        "notes = 5",
        "import os\ntry: os.execv('/bin/true', ['x'])\nexcept PermissionError: pass",
        "q = llm_query('why?')",
    ):
        assert (await client.execute("k1", code).result()).error is None
    if mode == "off":
        info = await client.kernel_info("k1")
        os.kill(info.pid or 0, signal.SIGKILL)
        await until(lambda: client.kernel_info("k1"), lambda now: now.pid not in (None, info.pid))
    before = await _noted(client)
    assert (before[0].untold_loss is None) is (mode == "strict")
    os.kill(client.pid or 0, signal.SIGKILL)
    assert await _noted(client) == before


async def test_a_message_that_a_dying_supervisor_had_shown_and_not_noted_harms_no_client(
    own_supervisor: SupervisorClient, tmp_path: Path, told
) -> None:
    """The next supervisor shows it again. A client of Jupyter raises an error if one signature comes twice."""
    await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), load_policy("default"))
    async with visit((await own_supervisor.kernel_info("k1")).connection) as front_end:
        front_end.execute(told.wait + "print('goes on')")
        await _shown(front_end, "execute_input")
        await until(lambda: _published(own_supervisor), lambda count: count == 2)  # busy, and this: it is shown first
        with noted_last(own_supervisor) as file:
            assert file.published == 2
            file.note_published(1)
        told.give()
        await _shown(front_end, "execute_input")
        assert (await _shown(front_end, "stream"))["text"] == "goes on\n"
        await _shown(front_end, "status")


async def _shown(front_end: AsyncKernelClient, kind: str) -> dict[str, Any]:
    """The next message of that kind; every one before it has to be a valid one as well."""
    while (message := await front_end.get_iopub_msg(timeout=60))["msg_type"] != kind:
        pass
    return dict(message["content"])


@pytest.mark.parametrize("mode", ["strict", "lazy", "off"])
async def test_a_cell_that_was_counted_and_not_copied_when_all_died_is_the_loss_itself(
    own_supervisor: SupervisorClient, tmp_path: Path, told, mode: str
) -> None:
    """Its answer had been held for its copy. It is undone and says so, and no completed cell is lost besides."""
    client, policy = own_supervisor, replace(load_policy("trusted"), checkpoint=mode)
    await client.spawn(SpawnRequest("k1", str(tmp_path)), policy)
    assert (await client.execute("k1", "n = 1").result()).error is None
    await until(lambda: client.kernel_info("k1"), lambda info: info.checkpoint or mode == "off")
    cell = client.execute("k1", f"n = 2\nprint('runs')\n{told.wait}")
    await until(cell.output_so_far, lambda told: "runs" in told[0])
    live = (await client.kernel_info("k1")).pid
    assert live is not None
    with noted_last(client) as file:
        cells, only_cells, pristine, _ = file.cells
        file.note_cells(cells + 1, file.running[0], only_cells, pristine)
        os.kill(live, signal.SIGKILL)
    async with asyncio.timeout(60):
        result = await cell.result()
    lost = Loss(Lost.EVERYTHING, cells=1, in_cell=True) if mode == "off" else Loss(in_cell=True)
    assert (result.ended, result.loss) == (Ended.WORKER_DIED, lost)
