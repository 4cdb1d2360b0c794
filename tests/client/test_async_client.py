"""The Python client for an event loop, on a real daemon with real kernels."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from waiting import until

from rlm_client import AsyncClient, Client
from rlm_client.results import Cell
from rlm_ipc.errors import DaemonUnavailable, ToolFailed

pytestmark = pytest.mark.anyio
SECONDS = 60


@pytest.fixture
def anyio_backend() -> str:
    """The client is made for asyncio."""
    return "asyncio"


@pytest.fixture
async def client(request: pytest.FixtureRequest, daemon: object) -> AsyncIterator[AsyncClient]:
    """Give a client with a session of its own."""
    async with AsyncClient(f"async-{request.node.name[:60]}") as made:
        yield made
        await made.end_session()


async def until_running(client: AsyncClient) -> None:
    """Wait until a cell of the session runs."""
    await until(client.status, lambda told: "running" in told["runs"].values())


async def test_calls_are_awaited_and_their_results_are_typed(client: AsyncClient) -> None:
    """K-1, K-6: what `Client` returns, and what it raises; the connection is of use after an error."""
    loaded = await client.load_context("log", content="INFO up\nERROR disk\n", content_type="log")
    assert (loaded.line_count, loaded.type) == (2, "log")
    assert [match.text for match in (await client.scan("log", "error")).results] == ["ERROR disk"]
    with pytest.raises(ToolFailed, match="no variable 'nothing'") as caught:
        await client.peek("nothing")
    assert caught.value.answer["error"] == "variable_not_found"
    assert (await client.eval_code("log['line_count']")).result == "2"


async def test_a_cell_that_waits_is_answered(client: AsyncClient) -> None:
    """K-22: its queries come whole, and it goes on in its frame."""
    cell = await client.eval_code("print('It is', llm_query('What?' + 10_000 * '!', mode='blocking'))")
    (query,) = await client.pending_queries()
    assert (cell.status, len(query.prompt)) == ("waiting", 10_005)
    answered = await client.answer_queries({query.id: "so"})
    assert answered.cell is not None
    assert answered.cell.stdout == "It is so\n"


async def test_calls_at_once_do_not_wait_for_each_other(client: AsyncClient) -> None:
    """Pages are read while a cell runs that only ends when another call has interrupted it."""
    await client.load_context("log", content="a\nb")
    running = asyncio.create_task(client.eval_code("while True: pass"))
    await until_running(client)
    pages = await asyncio.gather(*(client.peek("log", offset=n % 2, limit=1) for n in range(100)))
    assert [page.content for page in pages[:2]] == ["a", "b"]
    assert not running.done()
    assert await client.interrupt()
    cell = await running
    assert isinstance(cell, Cell)
    assert "CellInterrupted" in (cell.error or "")


async def test_a_call_that_is_cancelled_is_interrupted(client: AsyncClient) -> None:
    """The cell ends, and the client goes on: another cell would wait for it for ever."""
    running = asyncio.create_task(client.eval_code("while True: pass"))
    await until_running(client)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(SECONDS):
        assert (await client.eval_code("1 + 1")).result == "2"


async def test_a_call_whose_client_is_closed_is_interrupted_and_says_so(client: AsyncClient) -> None:
    """The daemon has not ended: whoever reads that looks for what killed it. In a thread it is the same."""
    running = asyncio.create_task(client.eval_code("while True: pass"))
    await until_running(client)
    await client.aclose()
    with pytest.raises(DaemonUnavailable, match="this client was closed"):
        await running
    await until(client.status, lambda told: not told["runs"])
    with Client(client.session) as other:
        waits = asyncio.create_task(asyncio.to_thread(other.eval_code, "while True: pass"))
        await until_running(client)
    with pytest.raises(DaemonUnavailable, match="this client was closed"):
        await waits
    async with asyncio.timeout(SECONDS):
        assert (await client.eval_code("1 + 1")).result == "2"


async def test_loops_and_threads_work_in_one_session(client: AsyncClient) -> None:
    """A `Client` in a thread and an `AsyncClient` see the same variables."""
    assert client.session is not None
    await client.eval_code("x = 20")
    found: list[str | None] = []

    def other() -> None:
        with Client(client.session) as same:
            found.append(same.eval_code("x + 1").result)

    thread = threading.Thread(target=other)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert found == ["21"]
