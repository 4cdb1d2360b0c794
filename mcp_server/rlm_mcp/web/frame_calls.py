"""What the page asks of frames and does to them: the whole of one, and the verbs that agents have.

For tasks of the queue, it can also claim, release, steal, and set the priority.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.by_hand import FramesByHand
from rlm_mcp.service.frames.plans import plan_of
from rlm_mcp.service.service import Service
from rlm_mcp.service.work.by_hand import WorkByHand
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


class ClaimBody(Nothing):
    """For how many seconds a person takes a task, and why from whoever has it."""

    seconds: float = Field(3600.0, gt=0)
    steal: str | None = Field(None, min_length=1, max_length=500)


class PriorityBody(Nothing):
    """Another place in the queue."""

    priority: int


async def _pop(frames: FramesByHand, frame: str, given: PopBody) -> JsonObject:
    lists = given.artifacts, given.decisions, given.hand_over
    return await frames.pop(frame, Outcome(Status(given.status), given.summary, *lists, given.children))


ByHand = TypeVar("ByHand")
Act = Callable[[ByHand, str, Any], Awaitable[JsonObject]]
Deeds = Mapping[str, tuple[type[BaseModel], Act[ByHand]]]
"""What each call takes, and does."""
_TO_FRAMES: Deeds[FramesByHand] = {
    "plan": (PlanBody, lambda frames, frame, given: frames.plan(frame, list(map(plan_of, given.goals)))),
    "push": (PushBody, lambda frames, frame, given: frames.push(frame, given.goal, fork=given.fork)),
    "pop": (PopBody, _pop),
    "invalidate": (Nothing, lambda frames, frame, _: frames.invalidate(frame)),
    "reopen": (Nothing, lambda frames, frame, _: frames.reopen(frame)),
    "forget": (Nothing, lambda frames, frame, _: frames.forget(frame)),
    "current": (Nothing, lambda frames, frame, _: frames.make_current(frame)),
}
_TO_TASKS: Deeds[WorkByHand] = {
    "claim": (ClaimBody, lambda work, frame, given: work.claim(frame, given.seconds, given.steal)),
    "release": (Nothing, lambda work, frame, _: work.release(frame)),
    "priority": (PriorityBody, lambda work, frame, given: work.set_priority(frame, given.priority)),
}


def routes(service: Service) -> list[Route]:
    """Return what the page may call about frames."""
    frames = service.frames_by_hand
    one = f"{PREFIX}frames/{{frame}}"
    return [
        look(one, functools.partial(_detail, frames)),
        look(f"{one}/export.{{kind}}", functools.partial(_export, service)),
        *_deeds(one, frames, _TO_FRAMES),
        *_deeds(f"{PREFIX}work/{{frame}}", service.work.by_hand, _TO_TASKS),
    ]


def _deeds(path: str, by_hand: ByHand, deeds: Deeds[ByHand]) -> Iterator[Route]:
    for name, (body, act) in deeds.items():
        yield deed(f"{path}/{name}", body, functools.partial(_do, act, by_hand))


async def _do(act: Act[ByHand], by_hand: ByHand, request: Request, given: Any) -> JsonObject:
    return await act(by_hand, request.path_params["frame"], given)


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
