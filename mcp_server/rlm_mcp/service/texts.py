"""Getting texts into the store and open: from inline content, a file, or what an answer had no room for."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from rlm_kernel import rendezvous
from rlm_kernel.contexts.model import StoredText
from rlm_kernel.contexts.shape import Shape, hint_of, shape_of
from rlm_kernel.contexts.store import ContextStore
from rlm_kernel.contexts.text import Text
from rlm_mcp.hello import ClientHello
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions import Session
from rlm_memory import contexts
from rlm_memory.contexts import StoredContent
from rlm_memory.store import Store
from rlm_sandbox.policy import resolve

__all__ = ["SYSTEM_FOLDERS", "Texts", "readable_path"]

_OPEN_TEXTS = 32
_COLLECT_AFTER_SECONDS = 600.0
"""How long a text that no row refers to stays: somebody may be about to load it again."""
_PIECE = 1 << 20
_LONGEST_PATH = 4095
"""Characters of a path that Linux takes."""
SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
"""From which nothing is loaded."""
_NO_SCRATCH = "/nonexistent"
"""Stands for the scratch folder, which is no remote client's business."""


class Texts:
    """The stored texts, and those of them that are open here."""

    def __init__(self, store: Store, files: ContextStore) -> None:
        self._store = store
        self.files = files
        self._open: OrderedDict[str, Text] = OrderedDict()

    async def take(self, content: str | bytes, limit: int) -> StoredText:
        """Store inline content of at most ``limit`` bytes; raises TextTooLarge."""
        if isinstance(content, str):
            return await asyncio.to_thread(self.files.put_text, content, limit=limit)
        return await asyncio.to_thread(self.files.put_bytes, content, limit=limit)

    async def keep(self, whole: str | Path, most: int) -> StoredText:
        """Store an output, or its first ``most`` bytes."""
        if isinstance(whole, str):
            return await asyncio.to_thread(self.files.put_text, whole)
        return await asyncio.to_thread(lambda: self.files.put_chunks(_chunks(whole, most)))

    def stored(self, digest: str) -> StoredText:
        """Return what is known of a stored text; raises UnknownText."""
        return self.files.get(digest)

    async def open(self, digest: str) -> Text:
        """Return the open text. The last used ones stay open, because opening reads the line index."""
        text = self._open.get(digest)
        if text is None:
            text = await asyncio.to_thread(lambda: self.files.open(self.files.get(digest)))
            self._open[digest] = text
            while len(self._open) > _OPEN_TEXTS:
                self._open.popitem(last=False)
        else:
            self._open.move_to_end(digest)
        return text

    async def shape(self, content: StoredContent) -> Shape | None:
        """Return what is known of a text that holds data."""
        text = await self.open(content.digest)
        if text.facts.data:
            told = content.metadata.get("table")
            return Shape("parquet", told if isinstance(told, dict) else {})
        return await asyncio.to_thread(shape_of, text, hint_of(content.type, content.metadata))

    def close_unused(self) -> set[str]:
        """Give up the leases on texts that no row refers to; return the digests that rows refer to.

        A lease lasts for as long as the text or a page of it is in use.
        """
        wanted = contexts.digests(self._store)
        for digest in [digest for digest in self._open if digest not in wanted]:
            del self._open[digest]
        return wanted

    async def collect(self) -> None:
        """Delete the stored texts that no row refers to, no kernel maps, and nobody used for a while."""
        wanted = self.close_unused()
        await asyncio.to_thread(self.files.collect, _COLLECT_AFTER_SECONDS, keep=wanted)


def readable_path(given: str, session: Session, hello: ClientHello) -> Path:
    """Return the absolute path of a file to load.

    A client on this machine (its hello has a working directory) loads what its user can read: it could read
    the file itself. Any other client loads what the session's policy lets code read. Nobody loads what tells
    of this process or of other sessions.
    """
    if not given or "\0" in given:
        raise ToolFault("cannot_read", "the path is empty or holds a NUL character", "give a file's path")
    if len(given) > _LONGEST_PATH:
        raise ToolFault("cannot_read", f"a path of {len(given):,} characters names no file", "give a file's path")
    path = Path(os.path.expanduser(given))
    base = hello.cwd or session.row.workspace
    if not path.is_absolute() and not base:
        said = f"{given!r} is relative, and to which folder is not known"
        raise ToolFault("cannot_read", said, "give an absolute path")
    path = Path(base) / path
    real = Path(os.path.realpath(path))
    _refuse_private(path, real)
    if not hello.cwd:
        _refuse_outside(path, real, session)
    return real


def _refuse_private(path: Path, real: Path) -> None:
    """Refuse the kernel's file systems (environment, memory) and our folders (every session's texts, tokens)."""
    ours = (rendezvous.state_folder(), rendezvous.runtime_folder(), str(rendezvous.config_dir()))
    for root in (*SYSTEM_FOLDERS, *ours):
        if path.is_relative_to(root) or real.is_relative_to(os.path.realpath(root)):
            raise ToolFault(
                "cannot_read",
                f"{str(path)!r} is under {root}, from which nothing is loaded",
                "load a file of your own; what code has made is loaded with variable=",
            )


def _refuse_outside(path: Path, real: Path, session: Session) -> None:
    files = resolve(session.policy, session.row.workspace or None, _NO_SCRATCH).files
    allowed = [root for root in (*files.read, *files.write) if root.startswith("/") and root != _NO_SCRATCH]
    if not any(real.is_relative_to(root) for root in allowed):
        raise ToolFault(
            "cannot_read",
            f"policy {session.row.policy!r} does not let a remote client load {str(path)!r}",
            f"load a file under one of: {', '.join(allowed) or '(none)'}; or send its text as content",
        )


def _chunks(path: Path, most: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while most > 0 and (piece := file.read(min(_PIECE, most))):
            most -= len(piece)
            yield piece
