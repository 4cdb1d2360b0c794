"""Machine code in a worker may say anything to the supervisor: it costs that session, and no other.

The language wall is off and the walls of the system stand. A cell speaks on the line below it, where our own code would
speak; what the supervisor then holds, believes and passes on is looked at from outside.
"""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from native_kernel import NATIVE, ON_THE_LINE, OPEN_TETHERS, TETHERS
from waiting import SECONDS, until

from rlm_contexts.errors import ContextError
from rlm_ipc import framing
from rlm_ipc.errors import KernelError
from rlm_ipc.framed_stream import Stream
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_ipc.worker_requests import Export
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.os_wall.rlimits import RESERVED_FILES
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio

MIB = 1 << 20


@pytest.fixture(scope="module")
async def bystander(supervisor, tmp_path_factory) -> str:
    """A kernel that does no harm and has a variable ``kept``."""
    folder = tmp_path_factory.mktemp("bystander")
    info = await supervisor.spawn(SpawnRequest("bystander", str(folder)), load_policy("default"))
    await supervisor.execute(info.kernel_id, "kept = 'kept'").result()
    return info.kernel_id


@pytest.fixture
async def hostile(supervisor, spawn, bystander, request):
    """A kernel without the language wall, which knows how to speak on its line; and a bystander that goes on."""
    options = getattr(request, "param", {})
    kernel = await spawn(replace(load_policy("default"), **(NATIVE | options)))
    await supervisor.execute(kernel.kernel_id, ON_THE_LINE).result()
    yield kernel
    assert (await supervisor.execute(bystander, "kept").result()).result == "'kept'"


@pytest.fixture
def run(supervisor, hostile):
    """Run a cell of the hostile kernel."""

    async def execute(code: str):
        async with asyncio.timeout(SECONDS):
            return await supervisor.execute(hostile.kernel_id, code).result()

    return execute


def most_memory(supervisor: SupervisorClient) -> int:
    """Bytes that the supervisor has held at one time."""
    status = Path(f"/proc/{supervisor.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def descriptors(supervisor: SupervisorClient) -> int:
    """How many the supervisor has open."""
    return len(os.listdir(f"/proc/{supervisor.pid}/fd"))


def forget_peak(supervisor: SupervisorClient) -> None:
    """Let the system count the supervisor's peak of memory anew."""
    Path(f"/proc/{supervisor.pid}/clear_refs").write_text("5")


async def test_writing_nothing_leaves_nothing_in_the_supervisor(supervisor, run) -> None:
    """Each empty message was kept in three lists: two hundred bytes for twenty that were sent."""
    forget_peak(supervisor)
    before = most_memory(supervisor)
    await run("for _ in range(3_000): line.socket.sendall(framing.pack(worker_protocol.STDOUT, (b'',)) * 100)")
    assert most_memory(supervisor) - before < 20 * MIB


async def test_json_of_many_small_values_is_not_made_into_objects(supervisor, run) -> None:
    """Twenty bytes of memory for each that tells of an empty list, in the one process that every session needs."""
    forget_peak(supervisor)
    before = most_memory(supervisor)
    result = await run("say(worker_protocol.Shown.TAG, b'[' + b'[],' * 8_000_000 + b'[]]')")
    assert "not shown" in result.stderr
    assert most_memory(supervisor) - before < 120 * MIB


@pytest.mark.parametrize("tag", ["Shown", "CellDone", "Asked", "Waits"])
@pytest.mark.parametrize(
    "told",
    [
        "b'[' * 100_000",
        "b'{\"a\":' * 100_000",
        "b'{\"reply\": ' + b'9' * (1 << 20) + b'}'",
        "b'{' + b','.join(b'\"k%d\":1' % number for number in range(1_000_000)) + b'}'",
        'b\'{"queries": [], "queries": NaN, "ids": [NaN, 1e999], "reply": -Infinity}\'',
    ],
    ids=["lists", "objects", "number", "keys", "twice"],
)
async def test_json_that_costs_more_than_it_tells_costs_that_session_alone(supervisor, run, tag, told) -> None:
    """It is read as nothing, or not at all; `hostile` looks for the bystander afterwards."""
    forget_peak(supervisor)
    before = most_memory(supervisor)
    with suppress(KernelError):
        await run(f"say(worker_protocol.{tag}.TAG, {told}); time.sleep(0.1)")
    assert supervisor.alive
    assert most_memory(supervisor) - before < 160 * MIB


async def test_large_texts_are_still_shown(run) -> None:
    """What is bounded is what JSON makes of bytes, not what an honest cell shows."""
    result = await run("'a,' * 4_000_000")
    assert len(result.result) == 8_000_002
    result = await run("raise ValueError('[,' * 4_000_000)")
    assert len(result.error.evalue) == 8_000_000


SMALL = {"limits": replace(load_policy("default").limits, memory_bytes=64 * MIB)}


@pytest.mark.parametrize("hostile", [SMALL], indirect=True)
async def test_half_a_message_counts_as_memory_of_the_kernel(run) -> None:
    """It lies in the supervisor, which has no limit of its own; the kernel that never ends its message has one."""
    result = await run(
        "begin(worker_protocol.STDOUT, 200 << 20)\n"
        "for _ in range(100): line.socket.sendall(bytes(1 << 20))\ntime.sleep(600)"
    )
    assert result.error.ename == "MemoryLimit"


@pytest.mark.parametrize("hostile", [{"checkpoint": "strict"}], indirect=True)
async def test_what_waits_for_a_copy_is_bounded(supervisor, run) -> None:
    """Under strict checkpoints a reply and what follows it wait; what follows is no business of a kernel's."""
    forget_peak(supervisor)
    before = most_memory(supervisor)
    await run(
        "rest = [b'<IDS|MSG>', b'', *[b'{}'] * 4]\n"
        "say(worker_protocol.SHELL, b'a', *rest)\n"
        "for _ in range(400): say(worker_protocol.IOPUB, bytes(1 << 20), *rest)"
    )
    assert most_memory(supervisor) - before < 150 * MIB


async def test_descriptors_of_a_kernel_do_not_stay_with_the_supervisor(supervisor, run) -> None:
    """Sixteen of each message that somebody waited for did, until the supervisor had none left for anybody."""
    says = "say(worker_protocol.CellDone.TAG, b'{}', fds=[0])"
    await run(says)  # with the session come descriptors of its own, and of its copies
    before = descriptors(supervisor)
    for _ in range(40):
        await run(says)
    assert descriptors(supervisor) < before + 30


async def test_a_kernel_that_sends_more_descriptors_than_any_message_has_is_ended(run) -> None:
    """The system would drop those that do not fit, and nobody would know which."""
    result = await run("say(worker_protocol.STDOUT, b'x', fds=[0] * 16)\ntime.sleep(600)")
    assert "broke its protocol" in result.error.evalue


async def test_faults_that_a_kernel_reports_do_not_fill_the_disk(run, module_isolation) -> None:
    """They go into the log of the supervisor: a bounded part of them, and nothing that commands a terminal."""
    await run("for _ in range(200): say(worker_protocol.FATAL, b'\\x1b]0;mine\\x07' * 10_000)")
    log = (module_isolation.state / "supervisor.log").read_bytes()
    assert b"mine" in log
    assert len(log) < MIB
    assert b"\x1b" not in log


async def test_messages_that_break_the_supervisor_do_not_fill_its_log(run, module_isolation) -> None:
    """What cannot be handled ends the process that sent it, once."""
    log = module_isolation.state / "supervisor.log"
    before = log.stat().st_size
    await run(
        "for kind in ([], {}, None, 5, 'stream', ['error']) * 50:\n"
        "    say(worker_protocol.Shown.TAG, json.dumps({'kind': kind, 'content': {}}).encode())"
    )
    deep = "'[' * 900 + ']' * 900"
    await run(
        "for _ in range(100): say(worker_protocol.Shown.TAG, "
        f'(\'{{"kind":"error","content":{{"x":\' + {deep} + \'}}}}\').encode())'
    )
    assert log.stat().st_size - before < 64 << 10


FORGED = {
    "an error": {"failure": {"error": "InvalidRegex", "message": "m", "details": {"ok": 1}}},
    "an answer": {"content": {}},
}


@pytest.mark.parametrize("kind", FORGED)
async def test_no_kernel_answers_a_call_about_another(supervisor, run, hostile, bystander, kind) -> None:
    """What it says went into the answer of the supervisor, also under the name of the number of a call.

    Here another's.
    """
    waits = supervisor.execute(bystander, "while True: pass")
    said: dict = {key: dict(value) for key, value in FORGED[kind].items()}
    inner = said["content"] if "content" in said else said["failure"]["details"]
    inner |= {"id": waits._run, "variables": []}  # the number is to be guessed: they count from one
    await run(f"answer_with({json.dumps(said).encode()!r})")
    with suppress(KernelError, ContextError):
        async with asyncio.timeout(SECONDS):
            await supervisor.variables(hostile.kernel_id)
    await waits.interrupt()
    assert (await waits.result()).error.ename == "CellInterrupted"


async def test_an_answer_that_is_too_large_costs_one_call(supervisor, run, hostile) -> None:
    """One that was as large as a kernel's may be became too large for the line to the daemon: everybody lost theirs."""
    await run(
        "size = (512 << 20) - 14\nsend = line.send\n"
        "def lie(tag, told=(), descriptors=(), *, later=False):\n"
        "    if tag != worker_requests.Answered.TAG: return send(tag, told, descriptors, later=later)\n"
        "    head = framing.HEADER.pack(tag, 0, 2, 14 + size) + struct.pack('!QQ', 14, size)\n"
        "    line.socket.sendall(head + b'{\"content\":{}}')\n"
        "    piece, left = bytes(1 << 20), size\n"
        "    while left: left -= line.socket.send(piece[:left])\n"
        "line.send = lie\nmine = 1"
    )
    with suppress(KernelError):
        async with asyncio.timeout(SECONDS):
            await supervisor.ask(hostile.kernel_id, Export("mine", 100))
    assert supervisor.alive


@pytest.mark.parametrize(
    "reply",
    [
        {"status": [1]},
        {"status": {"a": 1}},
        {"status": "\ud800"},
        {"status": "error", "ename": [], "evalue": {}, "traceback": 5},
        {"status": "error", "ename": {"a": 1}, "evalue": None, "traceback": [1, "two", None]},
        {"status": "ok", "execution_count": "9" * 1000},
        {"status": "ok", "execution_count": float("nan")},
        [],
    ],
)
async def test_a_reply_is_of_the_right_types_or_none(supervisor, run, reply) -> None:
    """Whoever gets a cell's result need not look: the daemon keeps it in sets and in its database."""
    told = {"reply": reply, "defined": 5, "shadowed": 7, "returned": {"log": 1}}
    result = await run(f"say(worker_protocol.CellDone.TAG, {json.dumps(told).encode()!r}); time.sleep(0.2)")
    assert result.status in ("ok", "error", "aborted")
    assert result.execution_count is None or isinstance(result.execution_count, int)
    assert result.error is None or all(isinstance(text, str) for text in (result.error.ename, result.error.evalue))
    assert result.error is None or all(isinstance(line, str) for line in result.error.traceback)
    assert result.defined == result.shadowed == result.returned == ()


async def _open_files(pid: int) -> list[int]:
    """The soft and the hard limit of a process."""
    row = Path(f"/proc/{pid}/limits").read_text().partition("Max open files")[2].split()
    return [int(row[0]), int(row[1])]


async def test_descriptors_under_way_do_not_keep_others_from_starting(run, spawn, supervisor) -> None:
    """The system counts those that a user has sent and nobody has received: a new session has to send one."""
    result = await run(
        "import errno, socket\npairs, refused = [], None\n"
        "while refused is None:\n"
        "    pairs.append(socket.socketpair())\n"
        "    try: socket.send_fds(pairs[-1][0], [b'x'], [0] * 250)\n"
        "    except OSError as error: refused = errno.errorcode[error.errno]\n"
        "refused"
    )
    assert result.result == "'ETOOMANYREFS'"
    for _ in range(2):  # one that was made ahead, and one that was not
        other = await spawn()
        await supervisor.execute(
            other.kernel_id, "1"
        ).result()  # the limit is final before it, but after the spawn's answer
        # Between cells; code may not open the reserve, and for a moment after a cell it is still kept back.
        await until(partial(_open_files, other.pid), lambda found: found == [256 + RESERVED_FILES] * 2)
        await supervisor.shutdown(other.kernel_id)


LIMITED = {"limits": replace(load_policy("default").limits, cell_seconds=1.0)}


@pytest.mark.parametrize("hostile", [LIMITED], indirect=True)
async def test_asking_for_input_does_not_stop_the_clock_of_an_agents_cell(run) -> None:
    """There is nobody who could answer it: the time limit would stand still for ever."""
    result = await run(
        "say(worker_protocol.STDIN, b'', b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'{}')\nwhile True: pass"
    )
    assert result.error.ename == "CellTimeout"


async def test_what_is_no_gate_is_not_taken_for_one(supervisor, run, hostile, module_isolation) -> None:
    """A forked session that sends some other descriptor: the supervisor looked at it for ever, and logged each look."""
    await run(
        "send = line.send\n"
        "reading, writing = os.pipe(); os.write(writing, b'x')\n"
        "def lie(tag, told=(), descriptors=(), *, later=False):\n"
        "    send(tag, told, [reading] if tag == worker_protocol.Started.TAG else descriptors, later=later)\n"
        "line.send = lie"
    )
    fork = SpawnRequest(hostile.kernel_id[:8] + "fork")
    log = module_isolation.state / "supervisor.log"
    before = log.stat().st_size
    made = await supervisor.fork(hostile.kernel_id, fork, replace(load_policy("default"), **NATIVE))
    assert (await supervisor.execute(made.kernel.kernel_id, "6 * 7").result()).result == "42"
    result = await supervisor.execute(made.kernel.kernel_id, "import os\nos.fork()").result()
    assert result.error.ename == "PermissionError"
    assert log.stat().st_size - before < 64 << 10
    await supervisor.shutdown(made.kernel.kernel_id)


@pytest.mark.parametrize("walls", ["5", '"language"', '{"landlock": 5}', '{"landlock": {}}', "null"])
async def test_a_copy_that_lies_about_its_walls_is_no_session(supervisor, run, hostile, walls) -> None:
    """It gets an answer that says so, and nothing of it is left."""
    await run(
        "send = line.send\n"
        "def lie(tag, told=(), descriptors=(), *, later=False):\n"
        f"    answer = (b'{{\"walls\": {walls}}}',) if tag == worker_protocol.Started.TAG else told\n"
        "    send(tag, answer, descriptors, later=later)\n"
        "line.send = lie"
    )
    fork = SpawnRequest(hostile.kernel_id[:8] + "fork")
    with pytest.raises(KernelError):
        async with asyncio.timeout(SECONDS):
            await supervisor.fork(hostile.kernel_id, fork, replace(load_policy("default"), **NATIVE))
    assert fork.kernel_id not in {kernel.kernel_id for kernel in await supervisor.kernels()}


FLOOD = """
import socket, sys
line, left = socket.socket(fileno=int(sys.argv[1])), 600 << 20
line.setblocking(False)
print("ready", flush=True)
while left > 0:
    try:
        left -= line.send(bytes(1 << 17))
    except BlockingIOError:
        pass
"""


async def test_what_a_dead_process_had_written_is_read_and_no_more() -> None:
    """Copies of it may hold its line, and write as fast as the supervisor reads: nobody else would be served again."""
    ours, theirs = framing.pair()
    heard, closed = [], asyncio.Event()
    stream = Stream(ours, heard.append, closed.set)
    stream.wait(600)
    command = [sys.executable, "-c", FLOOD, str(theirs.fileno())]
    floods = [subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdout=subprocess.PIPE) for _ in range(4)]
    try:
        for flood in floods:
            assert flood.stdout is not None
            assert await asyncio.to_thread(flood.stdout.readline) == b"ready\n"
        stream.finish()
        async with asyncio.timeout(SECONDS):
            await closed.wait()
        # What a line holds; before, all that they wrote. Zeros are messages without parts.
        assert len(heard) * framing.HEADER.size <= 4 * MIB
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()
        stream.close()
        theirs.close()


async def test_its_tether_ends_no_other_kernel(run) -> None:
    """Whoever writes into a tether has the system kill everybody who hangs on it."""
    assert (await run(TETHERS)).result == "1"
    assert (await run(OPEN_TETHERS + "for end in writing: os.write(end, b'x')")).error is None
