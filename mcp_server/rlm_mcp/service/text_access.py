"""Stores and opens texts: from inline content, a file, or output that did not fit into an answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from rlm_contexts.store.collector import Collected
from rlm_contexts.store.store import ContextStore, SharedText
from rlm_contexts.text.model import StoredText
from rlm_contexts.text.shape import Shape, hint_of, shape_of
from rlm_contexts.text.text import Text
from rlm_memory import contexts
from rlm_memory.contexts import StoredContent
from rlm_memory.store import Store

_OPEN_TEXTS = 32
_PIECE = 1 << 20


class Texts:
    """The stored texts, and those of them that are open here."""

    def __init__(self, store: Store, files: ContextStore) -> None:
        self._store = store
        self.files = files
        self._open: OrderedDict[str, Text] = OrderedDict()
        self._shapes: dict[str, tuple[str, Shape | None]] = {}
        """The shapes of open texts, each with its hint."""
        self.freed = 0
        """Bytes on disk of all that was collected."""

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
        """Return the description of a stored text; raises UnknownText."""
        return self.files.get(digest)

    async def open(self, digest: str) -> Text:
        """Return the open text. Recently used texts stay open, because opening reads the line index."""
        text = self._open.get(digest)
        if text is None or not self.files.is_current(text.facts):
            text = await asyncio.to_thread(lambda: self.files.open(self.files.get(digest)))
            self._close(digest)
            self._open[digest] = text
            while len(self._open) > _OPEN_TEXTS:
                self._close(next(iter(self._open)))
        else:
            self._open.move_to_end(digest)
        return text

    async def shape(self, content: StoredContent) -> Shape | None:
        """Return the description of a text."""
        text = await self.open(content.digest)
        if text.facts.data:
            told = content.metadata.get("table")
            return Shape("parquet", told if isinstance(told, dict) else {})
        hint = hint_of(content.type, content.metadata)
        hinted, shape = self._shapes.get(content.digest, (None, None))
        if hinted != hint:
            shape = await asyncio.to_thread(shape_of, text, hint)
            if self._open.get(content.digest) is text:
                self._shapes[content.digest] = hint, shape
        return shape

    def close_unused(self) -> None:
        """Release pins on texts that no row refers to; a pin lasts while a page of the text is in use."""
        for digest in [digest for digest in self._open if digest not in self]:
            self._close(digest)

    def _close(self, digest: str) -> None:
        self._open.pop(digest, None)
        self._shapes.pop(digest, None)

    def __contains__(self, digest: object) -> bool:
        """Whether a row refers to the text."""
        return contexts.is_held(self._store, str(digest))

    async def collect(self) -> Collected:
        """Delete the texts that no row refers to; those that are being read (``leased``) are deleted later."""
        self.close_unused()
        done = await asyncio.to_thread(self.files.collect, 0.0, keep=self)
        self.freed += done.freed
        return done


async def shared_text_of(texts: ContextStore, digest: str) -> SharedText:
    """Open a text's files for a kernel; if the caller is cancelled, they are closed."""
    opening = asyncio.create_task(asyncio.to_thread(lambda: texts.shared_text(texts.get(digest))))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_closed)
        raise


def _closed(opening: asyncio.Task[SharedText]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _chunks(path: Path, most: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while most > 0 and (piece := file.read(min(_PIECE, most))):
            most -= len(piece)
            yield piece
