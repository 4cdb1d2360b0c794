"""Records the project versions that each frame worked on, so that its end can report changes by others."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from rlm_ipc.messages import JsonObject
from rlm_lock.names import shown
from rlm_lock.protocol import CompareVersions
from rlm_mcp.service.background import BackgroundTasks
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.lock.history import past_of
from rlm_mcp.service.lock.memory_folder import note_session
from rlm_mcp.service.lock.projects import Projects
from rlm_memory import locks
from rlm_memory.locks import FrameVersion
from rlm_memory.store import Store
from rlm_memory.work import progress

log = logging.getLogger(__name__)

_WAIT_SECONDS = 1.0
"""How long the end of a frame waits for the lock; later results are still shown with the frame."""
_SECONDS = 30.0
"""How long a lock may take for the end of a frame, in all."""
_MOST_TOLD = 20


class FrameLocks:
    """Records the versions, only in projects whose lock was used."""

    def __init__(self, store: Store, projects: Projects) -> None:
        self._store, self._projects = store, projects
        self._ending = BackgroundTasks()

    def begin(self, frame: int, root: str) -> None:
        """Record the version at the start of a frame, if it is known; nothing is scanned."""
        if root and (known := locks.project(self._store, root)) is not None:
            locks.began(self._store, frame, root, known.version)

    async def end(self, frame: int, written: Iterable[str]) -> None:
        """Record the version at the end of a frame, and the changes that were not its own.

        ``written`` are files that its code wrote; hooks report others. If the project has a folder `.memory`, its
        history gets a line. No failure here prevents the end of a frame.
        """
        known = locks.of_frame(self._store, frame)
        if known is None or not Path(known.root).is_dir():
            return
        await asyncio.wait({self._ending.start(self._end(known, tuple(written)))}, timeout=_WAIT_SECONDS)
        if (session := past_of(self._store, frame)) is not None:
            reason = await asyncio.to_thread(note_session, known.root, session)
            if reason is not None:
                log.warning(
                    "a frame's line was not written to the folder .memory", extra={"frame": frame, "reason": reason}
                )

    async def aclose(self) -> None:
        """Cancel the pending work."""
        self._ending.cancel()
        await self._ending.wait()

    async def _end(self, known: FrameVersion, written: Iterable[str]) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                await self._compare(known, written)
        except (ToolFault, TimeoutError) as error:
            details = {"frame": known.frame, "reason": str(error)}
            log.warning("the lock of an ended frame was not refreshed", extra=details)

    async def _compare(self, known: FrameVersion, written: Iterable[str]) -> None:
        own = set(_inside(known.root, [*written, *self._told(known.frame)]))
        project = self._projects.of(known.root)
        project.note_changed(own)
        found = (await project.check(at_once=True)).found
        difference = await project.ask(CompareVersions(known.began, found.version))
        theirs = [change.path for change in difference.changes if change.path not in {shown(path) for path in own}]
        locks.ended(self._store, known.frame, found.version, theirs[:_MOST_TOLD])

    def told(self, frame: int) -> JsonObject:
        """Return the fields of an answer about an ended frame; none if its project has no lock."""
        known = locks.of_frame(self._store, frame)
        if known is None or known.ended is None:
            return {}
        said: JsonObject = {"lock_version": known.ended}
        if known.changed:
            said["changed_under_you"] = list(known.changed)
        return said

    def note_changed(self, root: str, paths: Collection[str]) -> None:
        """Note files that a hook has reported; the next check looks at them."""
        if (project := self._projects.get(root)) is not None:
            project.note_changed(paths)

    def _told(self, frame: int) -> list[str]:
        files = progress.get(self._store, frame).data.get("files_modified")
        return [file for file in files if isinstance(file, str)] if isinstance(files, list) else []


def _inside(root: str, files: Iterable[str]) -> list[str]:
    """Return those of the files that lie below the root, from there."""
    whole = (os.path.normpath(os.path.join(root, file)) for file in files)
    return [os.path.relpath(file, root) for file in whole if file.startswith(f"{root}/")]
