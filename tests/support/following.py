"""Clients that follow frames: the SDK's own, which notes the addresses that it is notified of."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.subscriptions import ResourceUpdated
from mcp_types import ResourceUpdatedNotification, TextResourceContents

TREE = "rlm-kernel://frames"
_PATIENCE = 60


class Heard:
    """A client, and the addresses that it is notified of, in their order."""

    def __init__(self, client: Client, heard: asyncio.Queue[str]) -> None:
        self.client, self._heard = client, heard

    async def next(self) -> str:
        with anyio.fail_after(_PATIENCE):
            return await self._heard.get()

    async def until(self, *wanted: str) -> set[str]:
        """Wait until it was notified of all these; returns all that it was notified of."""
        got: set[str] = set()
        while not got.issuperset(wanted):
            got.add(await self.next())
        return got

    async def read(self, address: str) -> str:
        """Return the text at an address, which the client reads now."""
        (found,) = (await self.client.read_resource(address)).contents
        assert isinstance(found, TextResourceContents)
        return found.text


@asynccontextmanager
async def hearing(transport: Any, wanted: list[str], mode: Any) -> AsyncIterator[Heard]:
    """Connect a client and subscribe it, as clients of its era do."""
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            heard.put_nowait(str(message.params.uri))

    async with Client(transport, mode=mode, message_handler=on_message) as client:
        if mode == "legacy":
            for address in wanted:
                await client.session.subscribe_resource(address)
            yield Heard(client, heard)
            return
        async with client.listen(resource_subscriptions=wanted) as stream, anyio.create_task_group() as tasks:

            async def read() -> None:
                async for event in stream:
                    if isinstance(event, ResourceUpdated):
                        heard.put_nowait(event.uri)

            tasks.start_soon(read)
            yield Heard(client, heard)
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def over_front(session: str, wanted: list[str], mode: Any) -> AsyncIterator[Heard]:
    """Connect a client of a session over a front of its own, and subscribe it."""
    environment = {**os.environ, "PARENT_SESSION_ID": session}
    front = StdioServerParameters(command=sys.executable, args=["-P", "-m", "rlm_mcp.front"], env=environment)
    async with hearing(stdio_client(front), wanted, mode) as heard:
        yield heard
