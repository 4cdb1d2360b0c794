"""What waits for a session, and what becomes of it when the session ends."""

import asyncio
from typing import Any

import pytest

from rlm_ipc import worker_protocol
from rlm_ipc.errors import KernelBusy, SessionExpelled, UnknownKernel
from rlm_ipc.jupyter_wire import DELIMITER
from rlm_kernel.supervisor.cells import request_queue
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.cells.request_queue import QueuedOperation, RequestQueue

pytestmark = pytest.mark.anyio


def of_caller(run: object = None) -> CellRequest:
    """A cell of a caller of the supervisor."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    return CellRequest.of_caller("1+1", True, future, run)


def of_client(name: bytes, kind: str = "execute_request") -> CellRequest:
    """A request of a Jupyter client."""
    header = f'{{"msg_type": "{kind}"}}'.encode()
    return CellRequest.of_client(worker_protocol.SHELL, [name, DELIMITER, b"", header, b"{}", b"{}", b"{}"])


async def _nothing() -> None:
    """Is never done here."""


async def test_items_are_taken_in_their_order_and_waited_for() -> None:
    """Also the first one, by a driver that was there before it."""
    queue, waits = RequestQueue("k"), asyncio.Event()

    async def drive() -> object:
        waits.set()
        return await queue.take()

    taking = asyncio.ensure_future(drive())
    await waits.wait()
    first, second = of_caller(), of_caller()
    queue.enqueue(first)
    queue.enqueue(second)
    assert await taking is first
    assert (queue.taken, queue.cell) == (first, first)
    assert await queue.take() is second


async def test_a_session_is_idle_while_it_does_nothing_but_work_of_the_supervisor() -> None:
    """Such work would else keep the copies from being taken for which the session has to be idle."""
    queue = RequestQueue("k")
    assert queue.idle
    queue.operation(_nothing)
    assert not queue.idle
    assert isinstance(await queue.take(), QueuedOperation)
    assert queue.idle
    queue.enqueue(of_caller())
    await queue.take()
    assert not queue.idle
    queue.taken = None
    assert queue.idle
    queue.close(UnknownKernel("k"))
    assert not queue.idle


async def test_a_full_queue_and_a_closed_one_take_nothing_more() -> None:
    """Whoever asks hears which of the two it is."""
    queue = RequestQueue("k")
    waiting = [queue.operation(_nothing) for _ in range(request_queue.MAX_QUEUE)]
    with pytest.raises(KernelBusy, match="waiting for this session"):
        await queue.operation(_nothing)
    await queue.take()
    waiting.append(queue.operation(_nothing))
    assert not waiting[-1].done()
    queue.close(SessionExpelled("it tried"))
    with pytest.raises(UnknownKernel):
        await queue.operation(_nothing)
    assert all(isinstance(future.exception(), SessionExpelled) for future in waiting)


async def test_everybody_who_waits_hears_why_the_session_ended() -> None:
    """Whoever has an answer already keeps it; so does a Jupyter client, which waits for no future."""
    queue = RequestQueue("k")
    running, waiting, answered = of_caller(), of_caller(), of_caller()
    for item in (running, waiting, answered, of_client(b"client")):
        queue.enqueue(item)
    await queue.take()
    operation = queue.operation(_nothing)
    assert answered.direct is not None
    answered.direct.cancel()
    queue.close(SessionExpelled("it tried"))
    for future in (running.direct, waiting.direct, operation):
        assert isinstance(future.exception(), SessionExpelled)  # type: ignore[union-attr]
    assert answered.direct.cancelled()


async def test_a_request_is_withdrawn_by_its_name() -> None:
    """Whether it waits or has been taken already."""
    queue = RequestQueue("k")
    requests = [of_caller("a"), of_caller("b"), of_caller("a")]
    for request in requests:
        queue.enqueue(request)
    await queue.take()
    assert queue.withdraw("a")
    assert not queue.withdraw("c")
    assert [request.withdrawn for request in requests] == [True, False, True]


async def test_the_waiting_cells_of_one_client_are_removed() -> None:
    """Its other requests stay, and so do the cells of others."""
    queue = RequestQueue("k")
    mine, other = [of_client(b"me"), of_client(b"me")], of_client(b"other")
    asks, direct = of_client(b"me", "complete_request"), of_caller()
    for request in (mine[0], other, asks, direct, mine[1]):
        queue.enqueue(request)
    assert queue.remove_cells(lambda cell: cell.identities == [b"me"]) == mine
    assert [await queue.take() for _ in range(3)] == [other, asks, direct]


async def test_only_requests_keep_a_session_from_being_unused() -> None:
    """To look at it is no use of it."""
    queue = RequestQueue("k")
    queue.last_used = 0.0
    queue.operation(_nothing)
    assert queue.last_used == 0.0
    queue.enqueue(of_caller())
    assert queue.last_used > 0.0
