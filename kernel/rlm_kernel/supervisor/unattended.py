"""What happens to idle sessions while there is no daemon to decide it, and to sessions that have to make way.

A session that is unused for as long as its policy says is ended here, after its variables have been saved if the policy
restores them. The file that remains (`rlm_ipc.left_kernels`) informs the next daemon. Everything else of a session, its
texts, queries and goals, belongs to the daemon; nobody can use it meanwhile.
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
from rlm_ipc.supervisor_core import CoreSaved, NotSaved
from rlm_ipc.variable_images import NO_IMAGE, ROOM, ArrivingImage
from rlm_ipc.worker_requests import HandedOut, Save, read_reply
from rlm_kernel.supervisor.running.kept_session import KeptSpec
from rlm_kernel.supervisor.session import SupervisedSession

log = logging.getLogger(__name__)

SAVE_SECONDS = 30.0
NOT_KEPT = "its policy keeps no variables (reopen: false)"


class Unattended:
    """Ends idle sessions of ``sessions`` while they are not ``attended``, and leaves files of them in ``folder``."""

    def __init__(self, folder: Path, sessions: Mapping[str, SupervisedSession], attended: Callable[[], bool]) -> None:
        self._folder, self._sessions, self._attended = folder, sessions, attended
        self._since = time.monotonic()
        """Since when nobody else looks after the sessions."""
        self._kept: dict[str, float] = {}
        """When sessions continued because no file of them could be left."""
        self._ending: asyncio.Task[None] | None = None

    def look(self) -> None:
        """End the session that has been idle for longest, one at a time: saving one takes memory."""
        if self._attended():
            self._since = time.monotonic()
        elif self._ending is None or self._ending.done():
            idle = [session for session in self._sessions.values() if self._overdue(session) > 0]
            if idle:
                session = max(idle, key=self._overdue)
                # It may be used while it is saved, or someone may come.
                self._ending = asyncio.create_task(self._end_idle(session, lambda: self._overdue(session) > 0))

    def make_room(self, session: SupervisedSession) -> bool:
        """Start to save and end an idle session for its memory. Return False while another one is being ended.

        It continues if it cannot be saved, or is used meanwhile.
        """
        if self._ending is not None and not self._ending.done():
            return False
        used = session.queue.used

        def still() -> bool:
            # Not "idle": the copy that follows a request may be waiting.
            return session.queue.used == used and session.cell is None and may_rest(session) and not self._attended()

        self._ending = asyncio.create_task(self._end_idle(session, still, unsaved=False))
        return True

    def close(self) -> None:
        """End no more sessions."""
        if self._ending is not None:
            self._ending.cancel()

    def _overdue(self, session: SupervisedSession) -> float:
        """Return for how many seconds it is overdue; negative if it is in use, or someone else decides its end."""
        if _is_theirs(session) or not session.queue.idle or self._attended():
            return -1.0
        used = max(self._since, session.queue.used, self._kept.get(session.kernel_id, 0.0))
        return time.monotonic() - used - session.policy.limits.idle_seconds

    async def _end_idle(self, session: SupervisedSession, still: Callable[[], bool], *, unsaved: bool = True) -> None:
        try:
            await self._leave(session, still, idled=True, unsaved=unsaved)
        except OSError as error:
            log.warning("session %s stays idle, because it cannot be saved: %s", session.kernel_id, error)
            self._kept[session.kernel_id] = time.monotonic()

    # -- sessions that make way

    async def end(self, session: SupervisedSession) -> CoreSaved:
        """Save a session for the next daemon, and end it; it is lost if it cannot be saved."""
        try:
            return await self._leave(session, lambda: True, idled=False)
        except OSError as error:
            log.warning("session %s cannot be saved: %s", session.kernel_id, error)
            session.close()
            return CoreSaved((), (), str(error))

    async def tried(self, session: SupervisedSession) -> CoreSaved:
        """Return what `end` would keep."""
        if not session.policy.reopen:
            return CoreSaved((), (), NOT_KEPT)
        leaving = await asyncio.to_thread(Leaving, self._folder, session.kernel_id)
        try:
            return _told(*await self._saved(session, leaving))
        finally:
            leaving.abandon()

    def given_up(self, spec: KeptSpec, reason: Exception) -> None:
        """Leave a note about a session that an earlier supervisor left and this one cannot continue."""
        request = spec.spawn.request
        now = time.time()
        leaving = Leaving(self._folder, request.kernel_id)
        try:
            leaving.finish(LeftKernel(request.kernel_id, request.label, now, now, {}, unsaved=str(reason), idled=False))
            leaving.publish()
        finally:
            leaving.abandon()

    async def _leave(
        self, session: SupervisedSession, still: Callable[[], bool], *, idled: bool, unsaved: bool = True
    ) -> CoreSaved:
        """End a session and leave a file of it, if that is ``still`` wanted then; raises OSError.

        Unless it may end ``unsaved``, it continues if it could not be saved.
        """
        leaving = await asyncio.to_thread(Leaving, self._folder, session.kernel_id)
        try:
            saved, why = await self._saved(session, leaving)
            info = session.info()
            record = LeftKernel(
                info.kernel_id,
                info.label,
                session.queue.last_used,
                time.time(),
                info.contexts,
                tuple(session.cells.after(0)),
                tuple(session.queries.pending.values()),
                saved,
                why if session.policy.reopen or not idled else "",
                idled,
            )
            await asyncio.to_thread(leaving.finish, record)
            if session.closed or not still() or not (saved or unsaved):
                return _told(saved, why)
            leaving.publish()
        finally:
            leaving.abandon()
        session.close()
        self._kept.pop(session.kernel_id, None)
        shared = any(other.scratch == session.scratch for other in self._sessions.values())
        await asyncio.to_thread(stale_files.remove_of, info, keep_scratch=shared)
        return _told(saved, why)

    async def _saved(self, session: SupervisedSession, leaving: Leaving) -> tuple[HandedOut | None, str]:
        """Save the variables if they are to be restored; otherwise return why they are not saved."""
        if not session.policy.reopen:
            return None, NOT_KEPT
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


def may_rest(session: SupervisedSession) -> bool:
    """Return whether a session returns by itself after its kernel has ended, and nobody watches it."""
    return session.policy.reopen and not _is_theirs(session)


def _is_theirs(session: SupervisedSession) -> bool:
    """Return whether front ends use a session, or it ends with one."""
    return bool(session.request.owned or session.request.trusted or session.front.attachments)


async def _save(session: SupervisedSession, leaving: Leaving) -> HandedOut:
    image = ArrivingImage(session.policy.limits.memory_bytes)
    while True:
        request = Save(None, image.at, ROOM)
        content, blobs = await session.ask(request, None)
        told, data = image.take(read_reply(request, content), blobs)
        await asyncio.to_thread(leaving.add, data)
        if image.whole:
            return told


def _told(saved: HandedOut | None, unsaved: str) -> CoreSaved:
    if saved is None:
        return CoreSaved((), (), unsaved)
    lost = (NotSaved(item.name, item.reason) for item in (*saved.failed, *saved.notes))
    return CoreSaved(tuple(row.name for row in saved.variables), tuple(lost))
