"""A Jupyter client at the sockets of a session, as a front end has one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from jupyter_client import AsyncKernelClient
from waiting import SECONDS


@asynccontextmanager
async def visit(connection: dict[str, Any]) -> AsyncIterator[AsyncKernelClient]:
    """Connect a client, which has been answered once and leaves at the end."""
    client = AsyncKernelClient()
    client.load_connection_info(connection)
    client.start_channels()
    try:
        await client.wait_for_ready(timeout=SECONDS)
        yield client
    finally:
        client.stop_channels()
