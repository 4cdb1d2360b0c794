"""What the page does to the queue: claim, release, steal, and another priority. The rest is what it does to frames."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.routing import Route

from rlm_ipc.messages import JsonObject
from rlm_mcp.service.service import Service
from rlm_mcp.service.work.by_hand import WorkByHand
from rlm_mcp.web.answers import PREFIX, Nothing, deed


class ClaimBody(Nothing):
    """For how many seconds a person takes a task, and why from whoever has it."""

    seconds: float = Field(3600.0, gt=0)
    steal: str | None = Field(None, min_length=1, max_length=500)


class PriorityBody(Nothing):
    """Another place in the queue."""

    priority: int


Act = Callable[[WorkByHand, str, Any], JsonObject]
_DEEDS: Mapping[str, tuple[type[BaseModel], Act]] = {
    "claim": (ClaimBody, lambda work, frame, given: work.claim(frame, given.seconds, given.steal)),
    "release": (Nothing, lambda work, frame, _: work.release(frame)),
    "priority": (PriorityBody, lambda work, frame, given: work.set_priority(frame, given.priority)),
}
"""What each call takes, and does."""


def routes(service: Service) -> list[Route]:
    """Return what the page may do to the queue."""
    work = service.work.by_hand
    return [deed(f"{PREFIX}work/{{frame}}/{name}", body, _on_task(work, act)) for name, (body, act) in _DEEDS.items()]


def _on_task(work: WorkByHand, act: Act) -> Callable[[Request, Any], Awaitable[JsonObject]]:
    async def do(request: Request, given: Any) -> JsonObject:
        return act(work, request.path_params["frame"], given)

    return do
