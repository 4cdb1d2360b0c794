"""What the page asks and does: JSON, with everything that could be markup written as escapes.

It can look, interrupt, roll back, fork, export, hand in answers, and do to frames what agents do. It cannot run code,
load files, or open or end sessions, except those in which the goals that it pushes and pops are worked for.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.session_record import SessionRecord
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.queries.answering import GivenAnswer
from rlm_mcp.service.service import Service
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.web import frame_calls, lock_calls, run_calls
from rlm_mcp.web.answers import PREFIX, Nothing, as_download, as_picture, deed, encode, look

__all__ = ["DEEDS", "PREFIX", "routes"]

LOOK_SECONDS = 0.5
"""Pause between two looks at the sessions."""
_QUIET_LOOKS = 20
"""Looks without news after which an empty line tells the page that the daemon lives."""
Act = Callable[[Service, Session, Any], Awaitable[JsonObject]]


def routes(service: Service) -> list[Route]:
    """Return what the page may call."""
    session = f"{PREFIX}sessions/{{session}}"
    return [
        Route(f"{PREFIX}live", functools.partial(_live, service), methods=["GET"]),
        look(f"{session}/export.{{kind}}", functools.partial(_export, service)),
        look(f"{session}/cells/{{cell:int}}/pictures/{{number:int}}", functools.partial(_picture, service)),
        *frame_calls.routes(service),
        *run_calls.routes(service),
        *lock_calls.routes(service),
        *(deed(f"{session}/{name}", body, _in_session(service, act)) for name, (body, act) in DEEDS.items()),
    ]


# --- looking --------------------------------------------------------------------------------------


async def _live(service: Service, request: Request) -> Response:
    chosen, work = request.query_params.get("session"), "work" in request.query_params
    return StreamingResponse(_news(service, chosen, work=work), media_type="application/x-ndjson")


async def _news(service: Service, chosen: str | None, *, work: bool) -> AsyncIterator[bytes]:
    """One line of JSON whenever something has changed: the parts of the page that did; ``work``: the board, too."""
    viewer = service.watch.viewer(chosen) if chosen else None
    board = service.work.by_hand.viewer() if work else None
    frames, runs = service.frames_by_hand.viewer(), service.model_runs.viewer()
    sent: dict[str, bytes] = {}
    quiet = 0
    while True:
        parts = plain(await service.watch.overview())
        if viewer is not None:
            seen = await viewer.look()
            parts |= {"missing": seen is None, **(seen or {})}
        written = {name: encode(part) for name, part in parts.items()}
        news = {name: text for name, text in written.items() if sent.get(name) != text}
        if (changed := frames.look()) is not None:
            news["tree"] = encode(changed)
        if (lines := runs.look()) is not None:
            news["runs"] = encode([plain(line) for line in lines])
        if board is not None and (changed := board.look()) is not None:
            news["work"] = encode(changed)
        quiet = 0 if news or not sent else quiet + 1
        if news or quiet >= _QUIET_LOOKS:
            sent, quiet = written, 0
            yield b"{" + b",".join(encode(name) + b":" + text for name, text in news.items()) + b"}\n"
        await asyncio.sleep(LOOK_SECONDS)


async def _export(service: Service, request: Request) -> Response:
    """The session as the file that ``rlm-kernel export`` writes."""
    from rlm_mcp.formats.notebook import as_markdown, as_text

    makers: dict[str, Callable[[SessionRecord, float], str]] = {"ipynb": as_text, "md": as_markdown}
    make = makers.get(request.path_params["kind"])
    if make is None:
        raise ToolFault("invalid_arguments", "a session is exported as .ipynb or .md")
    record = await service.record(request.path_params["session"])
    return as_download(await asyncio.to_thread(make, record, time.time()))


async def _picture(service: Service, request: Request) -> Response:
    given = request.path_params
    return as_picture(await service.watch.picture(given["session"], given["cell"], given["number"]))


# --- doing ----------------------------------------------------------------------------------------


class RollBack(Nothing):
    """How many cells to undo."""

    cells: int = Field(1, ge=1)


class ForkBody(Nothing):
    """The name of the new session; none: made up."""

    name: str | None = Field(None, max_length=128)


class GiveAnswer(Nothing):
    """An answer to a query, or why there is none."""

    id: str = Field(max_length=80)
    answer: str | None = None
    error: str | None = None


def _in_session(service: Service, act: Act) -> Callable[[Request, Any], Awaitable[JsonObject]]:
    async def do(request: Request, given: Any) -> JsonObject:
        session = service.sessions.named(request.path_params["session"])
        with service.sessions.use(session):
            return await act(service, session, given)

    return do


async def _interrupt(service: Service, session: Session, given: Nothing) -> JsonObject:
    return {"interrupted": await service.control.stop(session)}


async def _roll_back(service: Service, session: Session, given: RollBack) -> JsonObject:
    return (await service.control.rollback(session, given.cells)).fields


async def _fork(service: Service, session: Session, given: ForkBody) -> JsonObject:
    return (await service.fork(session, given.name or None, None)).fields


async def _answer(service: Service, session: Session, given: GiveAnswer) -> JsonObject:
    taken = await service.queries.answer(session, [GivenAnswer(given.id, given.answer, given.error)])
    for _, fault in taken.failed:
        raise fault
    return taken.told().fields


DEEDS: Mapping[str, tuple[type[BaseModel], Act]] = {
    "interrupt": (Nothing, _interrupt),
    "rollback": (RollBack, _roll_back),
    "fork": (ForkBody, _fork),
    "answer": (GiveAnswer, _answer),
}
"""What each call takes, which is what the tool takes that does the same; and what does it."""
