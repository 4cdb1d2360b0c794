"""What kernels send does not stay in the supervisor.

Neither of a cell that was answered nor of a process that has ended.
"""

import asyncio
import gc
import re
from dataclasses import replace
from pathlib import Path

import pytest
from native_kernel import NATIVE, ON_THE_LINE
from waiting import SECONDS, until

from rlm_ipc import framing, worker_protocol
from rlm_ipc.framed_stream import Overfull, Stream, Unfinished
from rlm_ipc.kernel_reports import QueryOutcome
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor.cells.query_book import MOST_CHARACTERS, QueryBook
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio

MIB = 1 << 20
HALF = f"""
size = 48 << 20
line.socket.sendall(framing.HEADER.pack(worker_protocol.STDOUT, 0, 1, size + 1) + struct.pack("!Q", size + 1))
piece = bytes({MIB})
for _ in range(48): line.socket.sendall(piece)
os.abort()
"""


def memory(supervisor: SupervisorClient) -> tuple[int, int]:
    """The resident bytes of the supervisor, and its share of those that it has in common with others."""
    rollup = Path(f"/proc/{supervisor.pid}/smaps_rollup").read_text()
    rss, pss = (re.search(rf"^{name}:\s+(\d+)", rollup, re.MULTILINE) for name in ("Rss", "Pss"))
    assert rss
    assert pss
    return int(rss[1]) << 10, int(pss[1]) << 10


def peak(supervisor: SupervisorClient) -> int:
    """The most resident bytes that the supervisor has had."""
    found = re.search(r"^VmHWM:\s+(\d+)", Path(f"/proc/{supervisor.pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) << 10


async def returns_to(supervisor: SupervisorClient, base: tuple[int, int]) -> None:
    """Wait until the supervisor has no more memory than it had, within 5 MB."""
    await until(lambda: not any(now > before + 5_000_000 for now, before in zip(memory(supervisor), base, strict=True)))


@pytest.fixture
async def sessions(own_supervisor, tmp_path) -> list[str]:
    """Three kernels, two behind both walls and one that speaks on its line as it likes; each has run a cell."""
    plain = load_policy("default")
    made = []
    for name, policy in (("first", plain), ("second", plain), ("native", replace(plain, **NATIVE))):
        kernel = await own_supervisor.spawn(SpawnRequest(f"memory{name}", str(tmp_path)), policy)
        await own_supervisor.execute(kernel.kernel_id, ON_THE_LINE if name == "native" else "1").result()
        made.append(kernel.kernel_id)
    return made


async def test_the_supervisor_gives_back_what_deaths_and_large_outputs_took(own_supervisor, sessions) -> None:
    """Half messages outlived their kernels, and 200 cells that print 0.9 MB left 340 MB: for ever, of any session."""
    first, second, native = sessions
    base = memory(own_supervisor)
    for _ in range(10):
        died = await own_supervisor.execute(native, HALF).result()
        assert died.error is not None
        assert "was killed by" in died.error.evalue
    assert peak(own_supervisor) > base[0] + 40 * MIB  # so much of each had arrived
    await returns_to(own_supervisor, base)
    for _ in range(100):
        results = await asyncio.gather(
            *(own_supervisor.execute(kernel, "print('x' * 900_000)").result() for kernel in (first, second))
        )
        assert [len(result.stdout) for result in results] == [900_001, 900_001]
    await returns_to(own_supervisor, base)
    for kernel in sessions:
        await own_supervisor.shutdown(kernel)
    await returns_to(own_supervisor, base)


@pytest.mark.parametrize(
    "code",
    [
        "print('x' * 3_000_000)",
        "'x' * 3_000_000",
        "raise ValueError('x' * 900_000)",
        "for _ in range(1000): print('x' * 900)",
        "answers = [llm_query('x' * 100_000) for _ in range(9)]",
    ],
)
async def test_whatever_a_session_sent_goes_with_it(own_supervisor, sessions, code) -> None:
    """Text over the cap, values, errors, many pieces, and the prompts of queries, which wait until then."""
    base = memory(own_supervisor)
    for _ in range(20):
        await own_supervisor.execute(sessions[0], code).result()
    for kernel in sessions:
        await own_supervisor.shutdown(kernel)
    await returns_to(own_supervisor, base)


async def test_a_session_that_waits_for_its_next_cell_holds_nothing_of_the_last(
    own_supervisor, policy, tmp_path
) -> None:
    """Its output was kept until then, of each session that takes no copies meanwhile."""
    kernels = [f"waits{number}" for number in range(10)]
    for kernel in kernels:
        await own_supervisor.spawn(SpawnRequest(kernel, str(tmp_path)), policy(checkpoint="off"))
        await own_supervisor.execute(kernel, "1").result()
    base = memory(own_supervisor)
    for kernel in kernels:
        assert len((await own_supervisor.execute(kernel, "print('x' * 900_000)").result()).stdout) == 900_001
    await returns_to(own_supervisor, base)


async def test_half_messages_of_all_together_are_bounded() -> None:
    """Who holds most is ended, and is told why; the others go on."""
    unfinished, failures = Unfinished(3 * MIB), []
    pairs = [framing.pair() for _ in range(3)]
    streams = [Stream(ours, lambda _: None, lambda: failures.append(1), unfinished=unfinished) for ours, _ in pairs]
    sizes = (MIB, MIB + MIB // 2, MIB // 4)
    for (_, theirs), size in zip(pairs, sizes, strict=True):
        await asyncio.to_thread(
            theirs.sendall, framing.HEADER.pack(worker_protocol.STDOUT, 0, 1, 64 * MIB) + bytes(8 + size)
        )
    async with asyncio.timeout(SECONDS):
        await until(lambda: sum(stream.parser.waiting for stream in streams) >= sum(sizes))
        await asyncio.to_thread(pairs[2][1].sendall, bytes(MIB // 2))
        await until(lambda: failures)
    assert [stream.closed for stream in streams] == [False, True, False]
    assert isinstance(streams[1].failure, Overfull)
    assert "3,145,728" in str(streams[1].failure)
    assert streams[1].parser.waiting == 0
    for stream, (_, theirs) in zip(streams, pairs, strict=True):
        stream.close()
        theirs.close()


async def test_a_stream_that_was_closed_is_held_by_nothing() -> None:
    """It holds what it tells of messages, which holds it: the collector that finds such circles comes late."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(3):
            ours, theirs = framing.pair()
            owner = _Owner(ours)
            theirs.close()
            owner.stream.close()
            del ours, owner
        gc.collect()
        assert [found for found in gc.garbage if isinstance(found, _Owner | Stream)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


class _Owner:
    def __init__(self, sock) -> None:
        self.stream = Stream(sock, self.hear, self.closed)

    def hear(self, message) -> None:
        message.close()

    def closed(self) -> None:
        self.ended = True


async def test_prompts_that_wait_are_bounded_together(own_supervisor, sessions) -> None:
    """A thousand queries of four million characters each would lie in the supervisor; the cell is told what to do."""
    asked = await own_supervisor.execute(
        sessions[0], "for _ in range(40): llm_query('x' * 4_000_000)\nwhile True: pass"
    ).result()
    assert asked.error is not None
    assert asked.error.ename == "QueryLimit"
    pending = await own_supervisor.pending_queries(sessions[0])
    assert sum(len(query.prompt) for query in pending) <= MOST_CHARACTERS
    await own_supervisor.answer(sessions[0], {query.id: QueryOutcome("a") for query in pending})
    again = await own_supervisor.execute(sessions[0], "llm_query('x' * 4_000_000)").result()
    assert again.error is None
    assert len(await own_supervisor.pending_queries(sessions[0])) == 1


async def test_prompts_that_are_not_waited_for_make_room() -> None:
    """Answered, withdrawn by a rollback, or waited for by the cell of the parent alone."""
    book = QueryBook(1, 1000, ("defer",))
    rows = book.ask([_query(number, 4_000_000) for number in range(1, 21)])
    assert len(rows) == 16
    assert book.full
    fork = QueryBook(1, 1000, ("defer",))
    fork.inherit(book, {"q_001"})
    assert len(fork.ask([_query(number, 4_000_000) for number in range(21, 24)])) == 1
    book.resolve({"q_001": QueryOutcome("")})
    assert book.withdraw("q_002")
    assert not book.withdraw("q_002")
    assert len(book.ask([_query(number, 4_000_000) for number in range(24, 28)])) == 2


def _query(number: int, size: int) -> dict[str, object]:
    return {"number": number, "prompt": "x" * size, "model": None, "mode": "defer"}
