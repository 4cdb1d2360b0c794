"""The lock for people at a command line, and for the page: no session, no policy, no limit of an answer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from rlm_ipc.lock_requests import LockShown, ShowLock
from rlm_ipc.messages import Json, alike
from rlm_lock.protocol import CompareVersions, Phase, ReadSection, Section
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.lock import content as shape
from rlm_mcp.service.lock.lock import Asked, Lock
from rlm_mcp.service.lock.memory_folder import write_lock
from rlm_memory.places import checkout_of


async def show_lock(lock: Lock, asked: ShowLock) -> LockShown:
    """Show a lock.

    Raises:
        ToolFault: there is no such folder, or the scanner refuses.
    """
    project = lock.projects.of(await asyncio.to_thread(_root, asked.folder))
    checked = await project.check(seconds=asked.seconds, at_once=asked.refresh)
    found, progress = checked.found, project.progress
    questions = {name: ReadSection(Section(name), path=asked.path) for name in asked.sections}
    sections: dict[str, Json] = {name: await lock.sections.read(project, one) for name, one in questions.items()}
    text, missing = "", list(found.missing)
    if asked.tokens:
        shown = await lock.map(project, Asked(map=asked.tokens, focus=asked.focus, about=asked.about, path=asked.path))
        text = shown.text
        missing += [*shown.missing, *(f"not in the project: {path}" for path in shown.unknown)]
    written: tuple[str, ...] = ()
    if asked.write and found.phase is Phase.READY:
        written = await write_lock(project, found, lock.sections.history(project.root))
    elif asked.write:
        missing.append("nothing was written, because the scan is not finished")
    changes = None
    if asked.since:
        changes = shape.difference(await project.ask(CompareVersions(asked.since, found.version, asked.seconds)))
    return alike(
        LockShown,
        found,
        root=project.root,
        is_hit=checked.is_hit,
        missing=tuple(dict.fromkeys(missing)),
        phase=found.phase.value,
        done=progress.done if progress else 0,
        total=progress.total if progress else 0,
        sections=sections,
        map=text,
        difference=changes,
        written=written,
    )


def _root(folder: str) -> str:
    """Return the project of a folder: the top of its working tree, else the folder."""
    if not folder or "\0" in folder or not os.path.isdir(folder):
        raise ToolFault("cannot_read", f"there is no folder {folder[:200]!r}", "name a folder of the project")
    return str(checkout_of(folder) or Path(folder).resolve())
