"""What the page asks of frames and does to them: the whole of one, and the verbs that agents have."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.by_hand import FramesByHand
from rlm_mcp.service.frames.plans import plan_of
from rlm_mcp.service.service import Service
from rlm_mcp.web.answers import PREFIX, Nothing, as_download, as_json, deed, look
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.states import Status
from rlm_memory.frames.tree import MOST_PLANNED


class PlanBody(Nothing):
    """Goals to write down below the frame: texts, or objects with goals below them."""

    goals: Annotated[list[Any], Field(min_length=1, max_length=MOST_PLANNED)]


class PushBody(Nothing):
    """A goal to start below the frame; none: the frame itself. ``fork``: in a session of its own."""

    goal: str | None = None
    fork: bool = True


class PopBody(Nothing):
    """What came of the frame."""

    status: Literal["completed", "failed", "blocked"] = "completed"
    summary: str = ""
    artifacts: list[str] = Field(default_factory=list)
    decisions: list[str] = Field(default_factory=list)
    hand_over: list[str] = Field(default_factory=list)
    children: Literal["refuse", "adopt", "fail"] = "refuse"


async def _plan(frames: FramesByHand, frame: str, given: PlanBody) -> JsonObject:
    return frames.plan(frame, list(map(plan_of, given.goals)))


async def _pop(frames: FramesByHand, frame: str, given: PopBody) -> JsonObject:
    lists = given.artifacts, given.decisions, given.hand_over
    return await frames.pop(frame, Outcome(Status(given.status), given.summary, *lists, given.children))


Act = Callable[[FramesByHand, str, Any], Awaitable[JsonObject]]
_DEEDS: Mapping[str, tuple[type[BaseModel], Act]] = {
    "plan": (PlanBody, _plan),
    "push": (PushBody, lambda frames, frame, given: frames.push(frame, given.goal, fork=given.fork)),
    "pop": (PopBody, _pop),
    "invalidate": (Nothing, lambda frames, frame, _: frames.invalidate(frame)),
    "reopen": (Nothing, lambda frames, frame, _: frames.reopen(frame)),
    "forget": (Nothing, lambda frames, frame, _: frames.forget(frame)),
    "current": (Nothing, lambda frames, frame, _: frames.make_current(frame)),
}
"""What each call takes, and does."""


def routes(service: Service) -> list[Route]:
    """Return what the page may call about frames."""
    frames = service.frames_by_hand
    one = f"{PREFIX}frames/{{frame}}"
    return [
        look(one, functools.partial(_detail, frames)),
        look(f"{one}/export.{{kind}}", functools.partial(_export, service)),
        *(deed(f"{one}/{name}", body, _on_frame(frames, act)) for name, (body, act) in _DEEDS.items()),
    ]


def _on_frame(frames: FramesByHand, act: Act) -> Callable[[Request, Any], Awaitable[JsonObject]]:
    return lambda request, given: act(frames, request.path_params["frame"], given)


async def _detail(frames: FramesByHand, request: Request) -> Response:
    return as_json(plain(frames.detail(request.path_params["frame"])))


async def _export(service: Service, request: Request) -> Response:
    """The log or the notebook of a frame, or what ``rlm-kernel tree --export`` writes of it and those below it."""
    from rlm_mcp.formats.tree import as_file

    frame, kind = request.path_params["frame"], request.path_params["kind"]
    if kind not in {"md", "ipynb", "json"}:
        raise ToolFault("invalid_arguments", "a frame is exported as .md or .ipynb, and its tree as .json")
    if kind == "json":
        return as_download(as_file(await service.trees.record(frame, cells=True)))
    return as_download(await service.frames_by_hand.file(frame, kind))
