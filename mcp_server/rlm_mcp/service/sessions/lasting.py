"""What is kept on disk of the variables of sessions that come back by themselves: it is their own, and ends with them.

It lies in a snapshot file, or under ``checkpoint: durable`` in a folder of pieces. Whoever writes one removes the
other. If that was cut off, both are there, and the newer counts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from rlm_mcp.formats.pieces import PieceFolder
from rlm_mcp.formats.snapshot import TEMPORARY, Archive, SavedImage, image_in
from rlm_mcp.service.background import in_thread

SUFFIX = ".rlmsnap"
_PIECES = ".pieces"


class Lasting:
    """The saved variables of all sessions; each session is named by its key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writing: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._replacing: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        self._readers: Counter[int] = Counter()

    def lock(self, session: int) -> asyncio.Lock:
        """What is held by whoever writes."""
        return self._writing.setdefault(session, asyncio.Lock())

    def replacing(self, session: int) -> asyncio.Lock:
        """What is held for a moment: by whoever replaces what is there, and by a new kernel that is given it.

        Else the kernel might be given what was there before, and what it does not have come back later.
        """
        return self._replacing.setdefault(session, asyncio.Lock())

    def file(self, session: int) -> Path:
        """Where its snapshot is. Call `keep_file` when it was written."""
        return self.folder / f"{session}{SUFFIX}"

    def pieces(self, session: int) -> PieceFolder:
        """Where its pieces are. Call `keep_pieces` when they were written."""
        return PieceFolder(self.folder / f"{session}{_PIECES}")

    def keep_file(self, session: int) -> None:
        """Remove what is older than the file."""
        if not self._readers[session]:  # a kernel is given what is there; the next save removes it
            self.pieces(session).remove()

    def keep_pieces(self, session: int) -> None:
        """Remove what is older than the pieces."""
        self.file(session).unlink(missing_ok=True)
        if not self._readers[session]:
            self.pieces(session).tidy()

    def link(self, session: int, saved: Path) -> None:
        """Have a session come back to a snapshot that its user has."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.file(session).unlink(missing_ok=True)
        self.file(session).hardlink_to(saved)
        self.keep_file(session)

    def exists(self, session: int) -> bool:
        """Whether anything is kept of a session."""
        return self.file(session).is_file() or self.pieces(session).exists()

    @asynccontextmanager
    async def open(self, session: int) -> AsyncIterator[SavedImage | None]:
        """Open what is kept of a session, which is checked while it is read; None if there is nothing.

        Raises:
            SnapshotRefused: It is damaged.
        """
        with ExitStack() as held:
            self._readers[session] += 1
            held.callback(self._readers.subtract, [session])
            found: list[SavedImage] = []
            if self.file(session).is_file():
                archive = held.enter_context(await in_thread(Archive.open, self.file(session)))
                found.append(image_in(archive))
            if (image := await in_thread(self.pieces(session).image)) is not None:
                found.append(image)
            yield max(found, key=lambda image: image.created_at, default=None)

    def forget(self, session: int) -> None:
        """Remove what is kept of a session."""
        with suppress(OSError):
            self.pieces(session).remove()
        with suppress(FileNotFoundError, NotADirectoryError):
            self.file(session).unlink()

    def keep_only(self, sessions: AbstractSet[int]) -> None:
        """Remove what is kept of other sessions than these, and files that were not written to their end."""
        there = {int(path.stem) for path in self.folder.glob("*.*") if path.stem.isdecimal()}
        for session in there - sessions:
            self.forget(session)
        for path in self.folder.glob(f"{TEMPORARY}*"):
            path.unlink(missing_ok=True)
