"""One session that floods the supervisor does not keep it from the others.

Each has its turn, and queries have a rate.
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from native_kernel import NATIVE, ON_THE_LINE
from waiting import SECONDS, until

from rlm_ipc import framing, worker_protocol
from rlm_ipc.framed_stream import Stream
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor.cells.query_book import QUERIES_A_SECOND, QueryBook
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio

ONE = framing.pack(worker_protocol.STDOUT, (b"x",))


async def test_a_message_waits_for_two_turns_of_a_flood_at_most() -> None:
    """All that one read had brought was handed over first: thousands of messages of another session."""
    (flooding, flood), (serving, quiet) = framing.pair(), framing.pair()
    heard, answered = [], asyncio.Event()
    streams = [
        Stream(flooding, heard.append, lambda: None),
        Stream(serving, lambda _: answered.set(), lambda: None),
    ]
    flood.sendall(ONE * 5_000)
    for _ in range(20):
        before = len(heard)
        quiet.sendall(ONE)
        async with asyncio.timeout(SECONDS):
            await answered.wait()
        assert len(heard) - before <= 32
        answered.clear()
    await until(lambda: len(heard) >= 5_000)
    for stream in streams:
        stream.close()
    flood.close()
    quiet.close()


async def test_what_is_left_over_is_heard_before_the_end() -> None:
    """Also when the other end has closed, in order."""
    ours, theirs = framing.pair()
    heard, closed = [], asyncio.Event()
    Stream(ours, heard.append, closed.set)
    theirs.sendall(b"".join(framing.pack(worker_protocol.STDOUT, (b"%d" % number,)) for number in range(1_000)))
    theirs.close()
    async with asyncio.timeout(SECONDS):
        await closed.wait()
    assert [int(message.parts[0]) for message in heard] == list(range(1_000))


async def test_a_fault_in_one_message_does_not_silence_the_next() -> None:
    """The daemon hears all sessions on one line."""
    ours, theirs = framing.pair()
    heard, closed = [], asyncio.Event()

    def hear(message: framing.Message) -> None:
        heard.append(message)
        raise OSError("the disk is full")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    Stream(ours, hear, closed.set)
    theirs.sendall(ONE * 100)
    theirs.close()
    async with asyncio.timeout(SECONDS):
        await closed.wait()
    assert len(heard) == 100


def test_queries_beyond_what_a_session_may_ask_have_a_rate() -> None:
    """Also those that are refused: it is the looking at them that takes time. Who keeps to the limit never waits."""
    book = QueryBook(1, 1_000, ("defer",))
    assert book.rest([{}] * 1_000) == 0.0
    assert book.rest([{}] * 2_000) >= 2_000 / QUERIES_A_SECOND - 1
    assert book.rest([]) > 0.0


@pytest.mark.parametrize(("rows", "most"), [(1, 10_000), (1_000, 1_500)])
async def test_a_flood_of_queries_is_not_read_on(own_supervisor, tmp_path, rows, most) -> None:
    """A native kernel announces as much as its line takes, in small messages or large ones: others are served.

    It tries to send a million times, and the supervisor takes what is allowed and leaves the rest in the line.
    """
    native = replace(load_policy("default"), **NATIVE)
    flooder = await own_supervisor.spawn(SpawnRequest("flooder", str(tmp_path)), native)
    quiet = await own_supervisor.spawn(SpawnRequest("quiet", str(tmp_path)), load_policy("default"))
    await own_supervisor.execute(flooder.kernel_id, ON_THE_LINE).result()
    told = Path(flooder.scratch, "told")
    flood = own_supervisor.execute(
        flooder.kernel_id,
        f"rows = json.dumps({{'queries': [{{}}] * {rows}}}).encode()\n"
        "message, sent = framing.pack(worker_protocol.Asked.TAG, (rows,)), 0\n"
        "for _ in range(1_000_000):\n"
        "    try: sent += line.socket.send(message, socket.MSG_DONTWAIT) // len(message)\n"
        "    except BlockingIOError: pass\n"
        f"open({str(told)!r}, 'w').write(f'{{sent}} messages')\n"
        "time.sleep(600)",
    )
    async with asyncio.timeout(60):
        while not (told.exists() and told.read_text()):
            assert (await own_supervisor.execute(quiet.kernel_id, "6 * 7").result()).result == "42"
    assert int(told.read_text().split()[0]) < most
    await flood.interrupt()
    assert (await flood.result()).error is not None
    for kernel in (flooder, quiet):
        await own_supervisor.shutdown(kernel.kernel_id)
