"""A call that is under way keeps its session, also when no kernel has anything to do with it."""

import asyncio
import http.server
import threading
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.anyio

IDLE = 7201.0


class Held(http.server.BaseHTTPRequestHandler):
    """One page, which comes when it is let go."""

    asked: threading.Event
    let_go: threading.Event

    def do_GET(self) -> None:
        self.asked.set()
        self.let_go.wait(60)
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"late\n")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def page() -> Iterator[tuple[str, type[Held]]]:
    """A server on this machine: the address, and what it waits for."""
    handler = type("OwnHeld", (Held,), {"asked": threading.Event(), "let_go": threading.Event()})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    yield f"http://127.0.0.1:{server.server_port}/", handler
    handler.let_go.set()
    server.shutdown()
    server.server_close()


async def test_a_call_that_outlasts_the_idle_time_keeps_its_session(quiet, connect, clock, permitting, page) -> None:
    """K-14: idle is what nobody uses; the time begins when the call has ended."""
    site, held = page
    async with connect("s", RLM_KERNEL_POLICY=permitting(site)) as agent:
        await agent("load_context", name="log", content="kept")
        loading = asyncio.create_task(agent("load_context", name="late", path=f"{site}late"))
        assert await asyncio.to_thread(held.asked.wait, 60)
        clock.now += 3 * IDLE
        assert await quiet.sweep() == []
        held.let_go.set()
        async with asyncio.timeout(60):
            assert (await loading)["size"] == 5
        clock.now += IDLE - 2
        assert await quiet.sweep() == []
        assert {row["name"] for row in (await agent("list_vars"))["variables"]} == {"log", "late"}
        clock.now += IDLE
        assert await quiet.sweep() == ["s"]
