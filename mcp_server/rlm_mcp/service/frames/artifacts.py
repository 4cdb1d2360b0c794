"""The files that a frame has written: those in its session's writable folders that changed after its start.

The kernel does not report the files that it writes, and would not be trusted. A file's change time is compared with
that of a marker that the daemon writes when the frame starts: the system sets both by one clock, and code in a session
can set neither.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

from rlm_mcp.service.sessions.sessions import Session
from rlm_sandbox.errors import PolicyError
from rlm_sandbox.policy import resolve

MOST_LOOKED_AT = 20_000
"""The most files and folders that are checked, so that a pop is fast in a large workspace."""
DEEPEST = 20
"""The deepest level of folders that is entered."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def writable(session: Session) -> tuple[str, ...]:
    """Return the folders that the session's code may write; none if it has no kernel."""
    info = session.kernel.info
    if info is None:
        return ()
    try:
        return resolve(session.policy, session.row.workspace or None, info.scratch).files.write
    except PolicyError:
        return ()  # the path has got a link since the kernel started: do not follow it


async def written_since(marker: Path, session: Session) -> list[str]:
    """Return the files that code of a session may have written after ``marker``, sorted."""
    return await asyncio.to_thread(changed_since, marker, writable(session))


def changed_since(marker: Path, folders: Iterable[str]) -> list[str]:
    """Return the files below ``folders`` that changed after ``marker``, sorted; none if there is no marker.

    Hidden files and files more than `DEEPEST` folders down are skipped, and links are not followed.
    """
    try:
        began = marker.stat().st_ctime_ns
    except OSError:
        return []
    below = chain.from_iterable(_below(folder, None, folder, DEEPEST) for folder in folders)
    return sorted({path for path, changed in islice(below, MOST_LOOKED_AT) if changed > began})


def _below(name: str, beside: int | None, path: str, depth: int) -> Iterator[tuple[str, int]]:
    """Yield each file with its change time in ns, and each folder with 0, because it counts, too.

    Folders are opened relative to their parent, never by path: a session could replace one by a link.
    """
    try:
        folder = os.open(name, _FOLDER, dir_fd=beside)
    except OSError:
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                inner = f"{path}/{entry.name}"
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue  # it was deleted in the meantime
                yield inner, found.st_ctime_ns if stat.S_ISREG(found.st_mode) else 0
                if stat.S_ISDIR(found.st_mode) and depth:
                    yield from _below(entry.name, folder, inner, depth - 1)
    finally:
        os.close(folder)
