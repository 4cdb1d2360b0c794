"""What the page asks of project locks: which there are, and one of them, looked at anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm_ipc.lock_requests import ShowLock
from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.lock.by_hand import LockByHand
from rlm_mcp.service.service import Service
from rlm_mcp.web.answers import PREFIX, encode, refused

__all__ = ["routes"]

_SECTIONS = ("project", "keyfiles", "rules")
_TOKENS = 4000
_MOST_VERSIONS = 1_000_000_000


def routes(service: Service) -> list[Route]:
    """Return what the page may ask about projects."""
    locks = LockByHand(service.lock)

    async def listed(request: Request) -> JsonObject:
        return {"projects": [asdict(row) for row in locks.known()]}

    async def one(request: Request) -> JsonObject:
        root, since = request.query_params.get("root", ""), request.query_params.get("since", "0")
        if root not in {row.root for row in locks.known()}:
            raise ToolFault("invalid_arguments", "that project has no lock", "make one: rlm-kernel lock")
        if not since.isdecimal() or int(since) > _MOST_VERSIONS:
            raise ToolFault("invalid_arguments", "since is the number of a version")
        asked = ShowLock(root, sections=_SECTIONS, tokens=_TOKENS, since=int(since))
        return plain(await locks.show(asked))

    return [
        Route(f"{PREFIX}projects", _answering(listed), methods=["GET"]),
        Route(f"{PREFIX}project", _answering(one), methods=["GET"]),
    ]


def _answering(look: Callable[[Request], Awaitable[JsonObject]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            found = await look(request)
        except Exception as error:
            return refused(error)
        return Response(encode(found), media_type="application/json")

    return answer
