"""A supervisor that is killed loses nothing: the keeper starts another one, which goes on with every kernel.

The kills are SIGKILL, of real processes.
"""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from native_kernel import NATIVE, OPEN_TETHERS, TETHERS
from session_processes import copies_of, keeper_of, kill_with_keeper, runs, standby_of, zygote_of
from waiting import until, wait_until

from rlm_contexts.store.store import ContextStore
from rlm_ipc import discovery, framing, left_kernels
from rlm_ipc.errors import KernelError, SupervisorGone
from rlm_ipc.kernel_reports import CellResult, KernelInfo, QueryOutcome
from rlm_ipc.outcomes import Ended, Lost
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.keeper import keeper
from rlm_kernel.supervisor.adoption import SET_ASIDE
from rlm_kernel.supervisor.keeping.session_file import SPEC, SessionFile
from rlm_kernel.supervisor.running.kept_session import KeptSpec
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import Policy, checked_json, load_policy
from rlm_sandbox.policy.model import LlmPolicy

pytestmark = pytest.mark.anyio
MakePolicy = Callable[..., Policy]
SECONDS = 60.0


class Session:
    """One kernel of a supervisor of its own."""

    def __init__(self, client: SupervisorClient, info: KernelInfo) -> None:
        self.client, self.info = client, info

    @property
    def supervisor(self) -> int:
        """The process that serves now."""
        assert self.client.pid is not None
        return self.client.pid

    def kill_supervisor(self) -> None:
        """Kill it, without waiting."""
        os.kill(self.supervisor, signal.SIGKILL)

    async def run(self, code: str) -> CellResult:
        """Run a cell."""
        async with asyncio.timeout(SECONDS):
            return await self.client.execute(self.info.kernel_id, code).result()

    async def value(self, code: str) -> str | None:
        """The value of a cell that succeeds."""
        result = await self.run(code)
        assert result.error is None, result.error
        return result.result

    async def pid(self) -> int:
        """The live process."""
        async with asyncio.timeout(SECONDS):
            found = (await self.client.kernel_info(self.info.kernel_id)).pid
        assert found is not None
        return found


@pytest.fixture(params=["lazy"])
async def session(
    own_supervisor: SupervisorClient, policy: MakePolicy, tmp_path: Path, request: pytest.FixtureRequest
) -> Session:
    """A session under the policy `trusted` with that mode of checkpoints, in which x is 1."""
    info = await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), policy("trusted", checkpoint=request.param))
    made = Session(own_supervisor, info)
    await made.run("x = 1")
    return made


@pytest.mark.parametrize("session", ["off", "lazy", "strict"], indirect=True)
async def test_variables_outlive_a_supervisor_whatever_the_policy(session: Session) -> None:
    """Nobody is told anything: the same process goes on."""
    before = await session.pid()
    for number in range(2, 5):
        session.kill_supervisor()
        assert await session.value("x += 1; x") == str(number)
    assert await session.pid() == before


@pytest.mark.parametrize("session", ["off", "strict"], indirect=True)
async def test_a_cell_goes_on_and_its_output_is_whole(session: Session, told) -> None:
    """Every line reaches the caller once, those from before the kill and those from after it."""
    code = "for i in range(200): print(i)\n" + told.wait + "for i in range(200, 400): print(i)\nx += 1\nx"
    cell = session.client.execute("k1", code)
    await until(cell.output_so_far, lambda told: "199" in told[0])
    session.kill_supervisor()
    await session.pid()
    told.give()
    async with asyncio.timeout(SECONDS):
        result = await cell.result()
    assert (result.result, result.error) == ("2", None)
    assert result.stdout == "".join(f"{number}\n" for number in range(400))
    assert await session.value("x") == "2"


async def test_a_cell_that_prints_without_end_loses_no_line(session: Session) -> None:
    """The kill comes in the middle of messages, again and again."""
    cell = session.client.execute("k1", "for i in range(6000): print(i)\nx += 1\nx")
    for _ in range(3):
        await session.pid()
        session.kill_supervisor()
    async with asyncio.timeout(SECONDS):
        result = await cell.result()
    assert result.result == "2"
    shown = result.stdout if result.spool is None else Path(result.spool).read_text()
    assert shown == "".join(f"{number}\n" for number in range(6000))


async def test_a_cell_that_ends_while_nobody_serves_is_answered_once(session: Session) -> None:
    """The kernel keeps its answer for the supervisor that comes."""
    for number in range(2, 6):
        cell = session.client.execute("k1", "x += 1\nprint('text')\nx")
        session.kill_supervisor()
        async with asyncio.timeout(SECONDS):
            result = await cell.result()
        assert (result.result, result.stdout, result.error) == (str(number), "text\n", None)
        await session.pid()


async def test_a_cell_that_waits_for_a_model_goes_on_waiting(
    own_supervisor: SupervisorClient, policy: MakePolicy, tmp_path: Path
) -> None:
    """Its question is asked anew, and its answer reaches it."""
    blocking = replace(policy(), llm=LlmPolicy(mode="blocking", wait_seconds=SECONDS))
    session = Session(own_supervisor, await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), blocking))
    cell = session.client.execute("k1", "llm_query('one')")
    for _ in range(2):
        info = await until(lambda: session.client.kernel_info("k1"), lambda told: bool(told.waiting))
        session.kill_supervisor()
    info = await until(lambda: session.client.kernel_info("k1"), lambda told: bool(told.waiting))
    assert [row.id for row in await session.client.pending_queries("k1")] == list(info.waiting)
    await session.client.answer("k1", {info.waiting[0]: QueryOutcome("yes")})
    async with asyncio.timeout(SECONDS):
        assert (await cell.result()).result == "'yes'"


async def test_contexts_limits_and_undoing_outlive_a_supervisor(
    own_supervisor: SupervisorClient, policy: MakePolicy, tmp_path: Path
) -> None:
    """What the supervisor keeps for a session, the next one has."""
    store = ContextStore(tmp_path / "store")
    info = await own_supervisor.spawn(
        SpawnRequest("k1", str(tmp_path)), policy("default", checkpoint="strict", cell_seconds=3.0)
    )
    session = Session(own_supervisor, info)
    with store.shared_text(store.put_text("alpha\n")) as shared_text:
        await own_supervisor.bind("k1", "log", shared_text, "log", {})
    await session.run("x = 1")
    await session.run("x = 2")
    before = await own_supervisor.kernel_info("k1")
    session.kill_supervisor()
    after = await own_supervisor.kernel_info("k1")
    assert (after.contexts, after.walls, after.undoable, after.latest) == (
        before.contexts,
        before.walls,
        before.undoable,
        before.latest,
    )
    assert (await own_supervisor.rollback("k1", 1)).possible is not None
    assert await session.value("x, log['content']") == "(1, 'alpha\\n')"
    stopped = own_supervisor.execute("k1", "while True: pass")
    await until(lambda: own_supervisor.running("k1"), lambda told: told.cell is not None)
    session.kill_supervisor()
    async with asyncio.timeout(SECONDS):
        assert (await stopped.result()).ended is Ended.TIME_LIMIT
    assert await session.value("x") == "1"
    assert (await own_supervisor.kernel_info("k1")).undoable == before.undoable  # it still permits copies


@pytest.mark.parametrize("session", ["strict"], indirect=True)
async def test_a_kernel_that_dies_with_its_supervisor_rolls_back_and_says_so(session: Session) -> None:
    """Its checkpoint takes over; the cell that ran is undone, and its answer says that."""
    cell = session.client.execute("k1", "x = 5\nprint('runs')\nwhile True: pass")
    await until(cell.output_so_far, lambda told: "runs" in told[0])  # one that had not begun would run on the copy
    live = await session.pid()
    os.kill(live, signal.SIGKILL)
    session.kill_supervisor()
    async with asyncio.timeout(SECONDS):
        result = await cell.result()
    assert result.ended is Ended.WORKER_DIED
    assert result.loss is not None
    assert (result.loss.what, result.loss.in_cell) == (Lost.NOTHING, True)
    assert await session.value("x") == "1"


@pytest.mark.parametrize("session", ["strict"], indirect=True)
@pytest.mark.parametrize("victim", ["zygote", "copies"])
async def test_a_supervisor_dies_with_another_process_and_the_kernel_goes_on(session: Session, victim: str) -> None:
    """Neither the zygote nor a checkpoint is needed for the session to go on, and both come again."""
    live = await session.pid()
    zygote = zygote_of(session.supervisor)
    assert zygote is not None
    for pid in [zygote.pid] if victim == "zygote" else copies_of(live):
        os.kill(pid, signal.SIGKILL)
    session.kill_supervisor()
    assert await session.value("x += 1; x") == "2"
    assert await session.pid() == live
    other = await session.client.spawn(SpawnRequest("k2"), checked_json(await _policy_of(session)))
    assert other.pid is not None


async def _policy_of(session: Session) -> str:
    from rlm_ipc import supervisor_protocol as protocol

    return (await session.client.call(protocol.POLICY, protocol.OfKernel("k1"))).policy


async def test_a_killed_keeper_is_replaced_and_nothing_notices(session: Session) -> None:
    """The supervisor starts another one. Then the supervisor can be killed again."""
    for number in range(2, 5):
        supervisor, keeping = session.supervisor, keeper_of(session.supervisor)
        keeping.kill()
        wait_until(partial(_keeper, supervisor), lambda found, dead=keeping: found not in (None, dead))
        session.kill_supervisor()
        assert await session.value("x += 1; x") == str(number)


def _keeper(supervisor: int) -> psutil.Process | None:
    try:
        return keeper_of(supervisor)
    except (LookupError, psutil.Error):
        return None


async def test_a_supervisor_starts_anew_where_nobody_stands_by(session: Session) -> None:
    """The process that is the next supervisor may be killed as well."""
    standby = standby_of(session.supervisor)
    assert standby is not None
    standby.kill()
    session.kill_supervisor()
    assert await session.value("x += 1; x") == "2"


@pytest.mark.parametrize("session", ["strict"], indirect=True)
async def test_without_keeper_and_supervisor_every_kernel_ends(session: Session) -> None:
    """A loop in Python does not notice any line that closes: the system ends it."""
    cell = session.client.execute("k1", "while True: pass")
    live = await session.pid()
    processes = [psutil.Process(pid) for pid in (live, *copies_of(live))]
    processes += psutil.Process(session.supervisor).children()
    kill_with_keeper(session.supervisor)
    with pytest.raises(SupervisorGone, match="variables are lost"):
        await cell.result()
    wait_until(lambda: not any(map(runs, processes)))


async def test_no_kernel_keeps_another_from_ending(session: Session, tmp_path: Path) -> None:
    """A hostile one holds all that it can. The other is a fork, and hangs on nothing of its parent's."""
    client, native = session.client, replace(load_policy("default"), **NATIVE)
    hostile = Session(client, await client.spawn(SpawnRequest("hostile", str(tmp_path)), native))
    await hostile.value(TETHERS + OPEN_TETHERS)
    parent = await client.spawn(SpawnRequest("parent", str(tmp_path)), native)
    fork = Session(client, (await client.fork(parent.kernel_id, SpawnRequest("fork", str(tmp_path)), native)).kernel)
    session.kill_supervisor()
    assert await fork.value(TETHERS) == "1"
    process, cell = psutil.Process(await fork.pid()), client.execute("fork", "while True: pass")
    kill_with_keeper(session.supervisor)
    with pytest.raises(SupervisorGone):
        await cell.result()
    wait_until(lambda: not runs(process))


async def test_a_kernel_holds_nothing_that_supervisor_and_keeper_hold(session: Session, tmp_path: Path) -> None:
    """Only other ends: no line of theirs, no file of a session, nothing of another session. A tether is a pipe."""
    fork = await session.client.fork("k1", SpawnRequest("fork", str(tmp_path)), load_policy("trusted"))
    found = [_held(pid) for pid in (await session.pid(), fork.kernel.pid)]
    for generation in range(2):
        standby, keeping = standby_of(session.supervisor), keeper_of(session.supervisor)
        assert standby is not None
        theirs = _held(session.supervisor) | _held(keeping.pid) | _held(standby.pid)
        for held in found:
            assert [name.partition(":")[0] for name in held & theirs] == ["pipe"]
        if generation == 0:
            session.kill_supervisor()
            await session.value("x")
    assert not found[0] & found[1]


def _held(pid: int | None) -> set[str]:
    """The open objects of a process that have a number of their own."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    return {link for link in links if link.startswith(("pipe:", "socket:", "/memfd:"))}


async def test_what_a_kernel_has_forked_ends_with_its_session(session: Session) -> None:
    """Nobody has told the supervisor of this process."""
    pid = int(await session.value("import os, time\nchild = os.fork()\nif not child: time.sleep(600)\nchild") or 0)
    process = psutil.Process(pid)
    await session.client.shutdown("k1")
    wait_until(lambda: not runs(process))


async def test_a_supervisor_that_dies_while_it_takes_over_loses_nothing(session: Session) -> None:
    """The next one is killed before it has served anybody."""
    for number in range(2, 5):
        standby = standby_of(session.supervisor)
        assert standby is not None
        keeping = keeper_of(session.supervisor)
        session.kill_supervisor()
        wait_until(partial(_has_taken_over, standby, keeping))
        standby.kill()
        assert await session.value("x += 1; x") == str(number)


def _has_taken_over(standby: psutil.Process, keeping: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return standby.ppid() == keeping.pid
    return True


_CLIENT = """
import json, sys
from jupyter_client.blocking.client import BlockingKernelClient
client = BlockingKernelClient()
client.load_connection_info(json.loads(sys.argv[1]))
client.start_channels()
client.wait_for_ready(60)
for code in sys.stdin:
    shown = []
    reply = client.execute_interactive(
        code, timeout=60, output_hook=lambda message: shown.append(message["content"].get("text", ""))
    )
    print(json.dumps([reply["content"]["status"], "".join(shown)]), flush=True)
"""


async def test_jupyter_clients_come_back_to_the_same_ports(session: Session) -> None:
    """One client, over several supervisors: each cell runs once and is answered."""
    connection = json.dumps((await session.client.kernel_info("k1")).connection)
    pipe = subprocess.PIPE
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", _CLIENT, connection, stdin=pipe, stdout=pipe)
    assert client.stdin is not None
    assert client.stdout is not None
    for number in range(2, 5):
        client.stdin.write(b"import time; x += 1; time.sleep(0.5); print(x)\n")
        await until(lambda: session.client.running("k1"), lambda told: told.cell is not None)
        session.kill_supervisor()
        async with asyncio.timeout(SECONDS):
            assert json.loads(await client.stdout.readline()) == ["ok", f"{number}\n"]
    client.stdin.close()
    assert await client.wait() == 0


async def test_two_supervisors_never_drive_one_kernel(session: Session) -> None:
    """A line of an older supervisor is refused, and so is another process that wants to serve."""
    session.kill_supervisor()
    await session.pid()
    with pytest.raises(discovery.DiscoveryError):
        discovery.claim(discovery.runtime_dir() / "supervisor.sock", seconds=0.1)
    ours, theirs = framing.lifelines()
    line, other = framing.pair()
    link = framing.SupervisorLink(other, theirs, 5)
    older, newer = framing.pair(), framing.pair()
    line.close()
    framing.give_line(ours, older[1], 4)
    framing.give_line(ours, newer[1], 6)
    older[1].close()
    newer[1].close()
    assert link.attach()
    link.send(b"o", (b"to the newer one",))
    assert b"to the newer one" in newer[0].recv(4096)
    assert older[0].recv(4096) == b""
    for sock in (ours, theirs, other, older[0], newer[0]):
        sock.close()


async def test_a_name_runs_once(session: Session) -> None:
    """Who asks again by the same name gets what came of the cell, and it does not run twice."""
    from rlm_ipc import supervisor_protocol as protocol

    call = protocol.Execute("k1", "x += 1\nx", run="mine")
    assert (await session.client.call(protocol.EXECUTE, call)).result == "2"
    session.kill_supervisor()
    assert (await session.client.call(protocol.EXECUTE, call)).result == "2"
    assert await session.value("x") == "2"
    session.kill_supervisor()
    with pytest.raises(KernelError, match="its answer was lost"):
        await session.client.call(protocol.EXECUTE, call)
    assert await session.value("x") == "2"


@pytest.mark.parametrize("session", ["off", "strict"], indirect=True)
async def test_a_batch_outlives_a_supervisor_and_no_cell_of_it_runs_twice(session: Session, told) -> None:
    """What has not begun is skipped if the next supervisor does not know whether it may; its caller asks anew."""
    batch = session.client.execute_all("k1", ["x += 1\nx", told.wait + "x += 10\nx", "x += 100\nx", "x += 1000\nx"])
    async with asyncio.timeout(SECONDS):
        assert (await batch[0].result()).result == "2"
        session.kill_supervisor()
        await session.pid()
        told.give()
        assert (await batch[1].result()).result == "12"
        last = [await one.result() for one in batch[2:]]
    done = [one.result for one in last if one.ended is not Ended.SKIPPED]
    assert done == ["112", "1112"][: len(done)]
    assert await session.value("x") == [*["12"], *["112", "1112"]][len(done)]


async def test_cells_behind_one_that_fails_are_skipped(session: Session) -> None:
    """Whatever is sent behind them runs; the names of skipped ones do not run later."""
    codes = ["x += 1", "1/0", "x += 10", "x += 100"]
    batch = session.client.execute_all("k1", codes)
    async with asyncio.timeout(SECONDS):
        results = [await one.result() for one in batch]
    assert [one.ended for one in results] == [Ended.BY_ITSELF, Ended.BY_ITSELF, Ended.SKIPPED, Ended.SKIPPED]
    assert [one.status for one in results] == ["ok", "error", "aborted", "aborted"]
    assert await session.value("x") == "2"
    assert [one.code for one in await session.client.cells("k1")] == []


def test_the_keeper_is_small() -> None:
    """It imports nothing of ours, and no module that needs much memory."""
    script = f"import sys; exec(open({keeper.__file__!r}).read(), {{}}); print(*sorted(sys.modules))"
    found = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    assert not {"enum", "socket", "selectors", "re", "typing"} & set(found.stdout.split())
    assert not [name for name in found.stdout.split() if name.startswith("rlm_")]


def test_a_keeper_that_holds_nothing_ends_with_its_supervisor() -> None:
    """Both ends are closed here: what the test holds must not keep it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno())]
    process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),))
    theirs.close()
    ours.close()
    assert process.wait(SECONDS) == 0


def test_a_keeper_of_many_descriptors_starts_the_next_supervisor(tmp_path: Path) -> None:
    """Also when the descriptor of the supervisor's process is above 1023, which `select` does not take."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno())]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    process = subprocess.Popen(argv, pass_fds=(theirs.fileno(),))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, most))
    theirs.close()
    mark = tmp_path / "started"
    script = f"open({str(mark)!r}, 'w').write('next'); import time; time.sleep(3600)"
    first = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    try:
        with ours, open(os.devnull) as null:
            for number in range(40):  # as many sessions with thirty descriptors each
                keeper.send(ours, keeper.PUT + b"s%d\0x" % number, (null.fileno(),) * 30)
            pidfd = os.pidfd_open(first.pid)
            program = b"\0".join((sys.executable.encode(), b"-c", script.encode()))
            keeper.send(ours, keeper.GENERATION + b"1\0" + program, (pidfd,))
            os.close(pidfd)
            keeper.send(ours, keeper.SERVES)
            first.kill()
            first.wait()
            wait_until(mark.exists)
            assert process.poll() is None
    finally:
        process.send_signal(signal.SIGSTOP)  # it would start another one
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()
        process.wait()


TOLD = """
import os, socket, sys
line = socket.socket(fileno=int(sys.argv[sys.argv.index('--keeper-fd') + 1]))
told = []
while not told or told[-1] != b'.':
    told.append(socket.recv_fds(line, 1 << 16, 64)[0])
with open(sys.argv[1] + '.new', 'wb') as file:
    file.write(b'|'.join(told))
os.rename(sys.argv[1] + '.new', sys.argv[1])
line.send(b'Q')
"""
"""A supervisor that writes down what the keeper gives it, and ends both."""


def test_a_keeper_waits_for_the_program_of_its_supervisor(tmp_path: Path) -> None:
    """An upgrade moves it for a moment. If the keeper ended, every kernel would."""
    found, program, script = tmp_path / "found", tmp_path / "python", tmp_path / "next.py"
    script.write_text(TOLD)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno())]
    with ours, subprocess.Popen(argv, pass_fds=(theirs.fileno(),)) as running:
        theirs.close()
        with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as first:
            pidfd = os.pidfd_open(first.pid)
            words = b"\0".join(os.fsencode(word) for word in (program, script, found))
            keeper.send(ours, keeper.GENERATION + b"1\0" + words, (pidfd,))
            os.close(pidfd)
            first.kill()
        assert ours.recv(1) == b""
        keeping = psutil.Process(running.pid)
        wait_until(lambda: running.poll() is not None or keeping.status() == psutil.STATUS_SLEEPING)
        program.symlink_to(sys.executable)
        assert running.wait(SECONDS) == 0
    assert found.read_bytes() == b"."


def test_a_keeper_holds_descriptors_all_or_none(tmp_path: Path) -> None:
    """Where it may have few open files, the system gives it some of them and says so."""
    found, script = tmp_path / "found", tmp_path / "next.py"
    script.write_text(TOLD)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno())]
    with ours, open(os.devnull) as null, subprocess.Popen(argv, pass_fds=(theirs.fileno(),)) as running:
        resource.prlimit(running.pid, resource.RLIMIT_NOFILE, (20, 20))
        theirs.close()
        with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as first:
            pidfd = os.pidfd_open(first.pid)
            words = b"\0".join(os.fsencode(word) for word in (sys.executable, script, found))
            keeper.send(ours, keeper.GENERATION + b"1\0" + words, (pidfd,))
            os.close(pidfd)
            keeper.send(ours, keeper.PUT + b"small\0x", (null.fileno(),))
            keeper.send(ours, keeper.PUT + b"large\0y", (null.fileno(),) * 19)
            keeper.send(ours, keeper.PUT + b"last\0z", (null.fileno(),))
            first.kill()
        assert running.wait(SECONDS) == 0
    assert found.read_bytes() == b"Psmall\0x|Plast\0z|."


@pytest.mark.parametrize("end", [signal.SIGABRT, signal.SIGKILL])
async def test_a_session_at_which_two_supervisors_have_failed_is_set_aside(
    own_supervisor: SupervisorClient, policy: MakePolicy, tmp_path: Path, end: signal.Signals
) -> None:
    """The third one does not try again; it goes on with the others, and leaves word for the daemon.

    One that is killed by somebody has not failed.
    """
    rules = policy("trusted")
    for name in ("deadly", "harmless"):
        info = await own_supervisor.spawn(SpawnRequest(name, str(tmp_path), label={"session": name}), rules)
        assert (await Session(own_supervisor, info).run("x = 1")).error is None
    before = own_supervisor.pid
    for fd in Path(f"/proc/{before}/fd").iterdir():  # the file that the next supervisors get
        if fd.readlink().name.startswith("memfd:session"):
            with closing(SessionFile(os.open(fd, os.O_RDWR))) as file:
                is_deadly = file.read(SPEC, KeptSpec).spawn.request.kernel_id == "deadly"
                for failed in range(1 + is_deadly):  # at the other one only one has failed
                    file.begin_taking_over(before_failed=failed > 0)
    os.kill(before or 0, end)
    await until(lambda: own_supervisor.pid != before)
    kernels = await own_supervisor.kernels()
    for info in kernels:
        assert await Session(own_supervisor, info).value("x") == "1"
    left = [file.left for _, file in left_kernels.left_kernels(discovery.state_dir() / left_kernels.FOLDER) if file]
    told = [(kernel.label["session"], kernel.unsaved, kernel.idled) for kernel in left]
    expected = [("deadly", SET_ASIDE, False)] if end is signal.SIGABRT else []
    assert ({info.kernel_id for info in kernels} | {"deadly"}, told) == ({"deadly", "harmless"}, expected)
    assert len(kernels) == 2 - len(expected)


SILENT = """
import os, signal, socket, sys
script, found = sys.argv[:2]
line = socket.socket(fileno=int(sys.argv[sys.argv.index('--keeper-fd') + 1]))
done = os.path.getsize(found)
if done == 1:
    words = map(os.fsencode, (sys.executable, script, found))
    socket.send_fds(line, [b'G9\\0' + b'\\0'.join(words)], [os.pidfd_open(os.getpid())])
elif done == 2:
    signal.sigtimedwait([], 5.0)
    line.send(b'Q')
open(found, 'a').write(str(done))
if done == 0:
    signal.pause()
"""
"""Hangs before it has said anything; then one that hands over to another program; then that, which is silent."""


def test_a_keeper_replaces_a_supervisor_that_hangs(tmp_path: Path) -> None:
    """Once its program has been heard. Not another one that never says that it is alive, as of an earlier version."""
    found, script = tmp_path / "found", tmp_path / "next.py"
    found.touch()
    script.write_text(SILENT)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # Time enough to start a program, on a busy machine too.
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno()), "0.5"]
    with ours, subprocess.Popen(argv, pass_fds=(theirs.fileno(),), start_new_session=True) as running:
        theirs.close()
        with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as first:
            words = b"\0".join(os.fsencode(str(word)) for word in (sys.executable, script, found))
            pidfd = os.pidfd_open(first.pid)
            socket.send_fds(ours, [b"G1\0" + words], [pidfd])
            os.close(pidfd)
            first.send_signal(signal.SIGSTOP)
            ours.send(b"A")
            assert first.wait(SECONDS) == -signal.SIGKILL
        assert running.wait(SECONDS) == 0
    assert found.read_text() == "012"
