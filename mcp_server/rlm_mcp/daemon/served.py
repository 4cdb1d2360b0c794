"""What a daemon serves: the service, and an MCP server over it once a client needs the SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.daemon.direct_calls import Permit
from rlm_mcp.daemon.sdk_stubs import import_sdk
from rlm_mcp.daemon.tool_calls import own_permit
from rlm_mcp.service.service import Service

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


@dataclass(frozen=True)
class Served:
    """The service of a daemon. Calls with a ``permit`` reach it directly, all others through the server.

    Creating the server takes a fifth of a second and 15 MB, mostly for the SDK.
    """

    service: Service
    make_server: Callable[[], Server[Any]]
    permit: Permit | None


@asynccontextmanager
async def create() -> AsyncIterator[Served]:
    """Open the service on the user's state folder, and yield what serves it."""

    def make_server() -> Server[Any]:
        import_sdk()
        from rlm_mcp.daemon.mcp_server import build_server

        return build_server(service)

    async with Service.open() as service:
        yield Served(service, make_server, own_permit(service))
