"""The loop's rows in the daemon, and its calls, which are repeated if the daemon ends during one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from rlm_client.async_client import AsyncClient
from rlm_ipc.chain_requests import AgentRun, Chain, NoteChain, NoteRun, SurveyWork, TaskLine, WorkSurveyed
from rlm_ipc.daemon_connection_async import AsyncDaemonConnection
from rlm_ipc.daemon_requests import Request
from rlm_ipc.errors import CallerError, KernelError, ToolFailed
from rlm_ipc.messages import JsonObject

Reply = TypeVar("Reply")
_TRIES = 60
_PAUSE_SECONDS = 0.2


class Rows:
    """The daemon as seen by one chain. ``top`` is the frame that is the whole scope, if there is one."""

    def __init__(self, session: str | None, top: str, scope: str | None) -> None:
        self._top, self._scope = top, scope
        self._client = AsyncClient(session)

    async def survey(self) -> WorkSurveyed:
        """Return all frames of the scope."""
        return await ask(SurveyWork(self._top))

    async def look(self, task: str) -> TaskLine:
        """Return one frame."""
        return (await ask(SurveyWork(task))).frames[0]

    async def note(self, chain: Chain, **batch: Any) -> int:
        """Store the chain and the outcome of a batch. Return the size of the next batch."""
        return (await ask(NoteChain(chain, **batch))).next_size

    async def note_run(self, chain: int, run: AgentRun) -> None:
        """Store a run."""
        await ask(NoteRun(chain, run))

    async def next(self, most: int, *, wait: bool = False) -> JsonObject:
        """Ask which tasks are ready, or why none is."""
        data = {"limit": most, **({"scope": self._scope} if self._scope else {})}
        return await _again(lambda: self._client.work("next", data=data, wait=wait))

    async def claim(self, task: str, pid: int, process: str) -> int | None:
        """Claim a task for a process. Return the fence, or None if someone else was faster."""
        try:
            said = await _again(lambda: self._client.work("claim", task, holder=f"pid:{pid}"))
            return int(said["fence"])
        except ToolFailed as refused:
            if refused.answer.get("error") not in {"not_ready", "path_taken", "frame_not_found", "frame_status"}:
                raise
        line = await self.look(task)  # if an answer was lost, it is unknown whether the call was carried out
        return line.fence if line.process == process else None

    async def done(self, task: str, data: Mapping[str, Any], pid: int | None) -> JsonObject:
        """End a task, for the process that holds it or without a claim."""
        if pid is None:
            return await _again(lambda: self._client.work("done", task, {**data, "force": True}))
        return await _again(lambda: self._client.work("done", task, data, holder=f"pid:{pid}"))

    async def hand_off(self, task: str, data: Mapping[str, Any]) -> None:
        """Write a hand-off."""
        await _again(lambda: self._client.handoff(task, data))

    async def reopen(self, task: str) -> None:
        """Reopen an ended task."""
        await _again(lambda: self._client.frame(task, do="reopen"))

    async def context(self, task: str) -> str:
        """Return a frame's context for a model."""
        return str((await _again(lambda: self._client.call("frame", id=task))).get("context", ""))

    async def load(self, name: str, text: str) -> None:
        """Load a text under a name into the session of the folder."""
        await _again(lambda: self._client.load_context(name, content=text))

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.aclose()


async def ask(request: Request[Reply]) -> Reply:
    """Send a request to the daemon, which is started if none is running."""

    async def made() -> Reply:
        connection = await AsyncDaemonConnection.open(request)
        connection.close()
        reply: Reply = connection.reply
        return reply

    return await _again(made)


async def _again(call: Callable[[], Awaitable[Reply]]) -> Reply:
    """Repeat a call until a daemon answers; a daemon that has ended is started again."""
    for _ in range(_TRIES):
        try:
            return await call()
        except CallerError:
            raise
        except (KernelError, OSError):
            await asyncio.sleep(_PAUSE_SECONDS)
    return await call()
