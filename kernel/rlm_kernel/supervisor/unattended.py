"""What becomes of idle sessions while no daemon is there, which else decides it.

A session that nobody uses for as long as its policy says is ended here, after its variables have been saved if the
policy has it come back. The file that is left (`rlm_ipc.left_kernels`) tells the next daemon. What else there is of a
session, its texts, queries and goals, is the daemon's; nobody can use them meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rlm_ipc import stale_files
from rlm_ipc.errors import KernelError, ProtocolError
from rlm_ipc.left_kernels import Leaving, LeftKernel
from rlm_ipc.variable_images import NO_IMAGE, ROOM, ArrivingImage
from rlm_ipc.worker_requests import HandedOut, Save, read_reply
from rlm_kernel.supervisor.session import SupervisedSession

log = logging.getLogger(__name__)

SAVE_SECONDS = 30.0


class Unattended:
    """Ends idle sessions of ``sessions`` while they are not ``attended``, and leaves files of them in ``folder``."""

    def __init__(self, folder: Path, sessions: Mapping[str, SupervisedSession], attended: Callable[[], bool]) -> None:
        self._folder, self._sessions, self._attended = folder, sessions, attended
        self._since = time.monotonic()
        """Since when nobody else looks after the sessions."""
        self._kept: dict[str, float] = {}
        """When sessions went on of which no file could be left."""
        self._ending: asyncio.Task[None] | None = None

    def look(self) -> None:
        """End the session that has idled for longest, one at a time: to save one takes memory."""
        if self._attended():
            self._since = time.monotonic()
        elif self._ending is None or self._ending.done():
            idle = [session for session in self._sessions.values() if self._overdue(session) > 0]
            if idle:
                self._ending = asyncio.create_task(self._end(max(idle, key=self._overdue)))

    def close(self) -> None:
        """End no more sessions."""
        if self._ending is not None:
            self._ending.cancel()

    def _overdue(self, session: SupervisedSession) -> float:
        """For how many seconds it should have been ended; negative if it is in use, or its end is somebody else's."""
        theirs = session.request.owned or session.request.trusted  # they end with a front end
        if theirs or session.front.attachments or not session.queue.idle or self._attended():
            return -1.0
        used = max(self._since, session.queue.used, self._kept.get(session.kernel_id, 0.0))
        return time.monotonic() - used - session.policy.limits.idle_seconds

    async def _end(self, session: SupervisedSession) -> None:
        try:
            leaving = await asyncio.to_thread(Leaving, self._folder, session.kernel_id)
            try:
                saved, unsaved = await self._saved(session, leaving)
                info = session.info()
                left = LeftKernel(
                    info.kernel_id,
                    info.label,
                    session.queue.last_used,
                    time.time(),
                    info.contexts,
                    tuple(session.cells.after(0)),
                    tuple(session.queries.pending.values()),
                    saved,
                    unsaved,
                )
                await asyncio.to_thread(leaving.finish, left)
                if self._overdue(session) < 0 or session.closed:  # it was used meanwhile, or somebody has come
                    return
                leaving.publish()
            finally:
                leaving.abandon()
        except OSError as error:
            log.warning("session %s idles on, because nothing can be left of it: %s", session.kernel_id, error)
            self._kept[session.kernel_id] = time.monotonic()
            return
        session.close()
        self._kept.pop(session.kernel_id, None)
        shared = any(other.scratch == session.scratch for other in self._sessions.values())
        await asyncio.to_thread(stale_files.remove_of, info, keep_scratch=shared)

    async def _saved(self, session: SupervisedSession, leaving: Leaving) -> tuple[HandedOut | None, str]:
        """Save the variables if they are to come back; else returns why they could not be saved, if they should be."""
        if not session.policy.reopen:
            return None, ""
        try:
            async with asyncio.timeout(SAVE_SECONDS):
                return await _save(session, leaving), ""
        except ProtocolError:
            unsaved = NO_IMAGE
        except (KernelError, OSError) as error:
            unsaved = str(error)
        except TimeoutError:
            unsaved = f"it took longer than {SAVE_SECONDS:g} s"
        log.warning("session %s could not be saved before it ends: %s", session.kernel_id, unsaved)
        leaving.forget_image()
        return None, unsaved


async def _save(session: SupervisedSession, leaving: Leaving) -> HandedOut:
    image = ArrivingImage(session.policy.limits.memory_bytes)
    while True:
        request = Save(None, image.at, ROOM)
        content, blobs = await session.ask(request, None)
        told, data = image.take(read_reply(request, content), blobs)
        await asyncio.to_thread(leaving.add, data)
        if image.whole:
            return told
