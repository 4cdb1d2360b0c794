"""What the page asks of project locks: which there are, and one of them, looked at anew."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm_ipc.lock_requests import ShowLock
from rlm_ipc.messages import plain
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.lock.by_hand import show_lock
from rlm_mcp.service.service import Service
from rlm_mcp.web.answers import PREFIX, as_json, look

_SECTIONS = ("project", "keyfiles", "rules")
_TOKENS = 4000
_MOST_VERSIONS = 1_000_000_000


def routes(service: Service) -> list[Route]:
    """Return what the page may ask about projects."""

    async def listed(request: Request) -> Response:
        return as_json({"projects": [asdict(row) for row in service.lock.known()]})

    async def one(request: Request) -> Response:
        root, since = request.query_params.get("root", ""), request.query_params.get("since", "0")
        if root not in {row.root for row in service.lock.known()}:
            raise ToolFault("invalid_arguments", "that project has no lock", "make one: rlm-kernel lock")
        if not since.isdecimal() or int(since) > _MOST_VERSIONS:
            raise ToolFault("invalid_arguments", "since is the number of a version")
        asked = ShowLock(root, sections=_SECTIONS, tokens=_TOKENS, since=int(since))
        return as_json(plain(await show_lock(service.lock, asked)))

    return [look(f"{PREFIX}projects", listed), look(f"{PREFIX}project", one)]
