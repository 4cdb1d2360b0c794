"""Reads permitted sources into the content store, in a thread or a helper process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, assert_never

from rlm_contexts.errors import TextTooLarge
from rlm_contexts.loading.selection import put_asked
from rlm_contexts.loading.sources import LoadedSource, put_url
from rlm_contexts.text.model import StoredText
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_mcp.service.contexts.authority import (
    Permitted,
    PermittedFiles,
    PermittedStored,
    PermittedText,
    PermittedUrl,
    PermittedVariable,
)
from rlm_mcp.service.progress import patiently
from rlm_mcp.service.text_access import Texts

NOTED = frozenset({"path", "paths", "files", "table", "compression", "replacements"})
"""Metadata recorded for a text from files or a URL. The next load may not record all of it again."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """A stored text, the metadata that its origin adds, and the table of its files if it has one."""

    text: StoredText
    notes: Mapping[str, Any] = field(default_factory=dict)
    table: StoredText | None = None


@dataclass(frozen=True, slots=True)
class Ingestion:
    """Stores what one session may load. ``export`` is `KernelVariables.export` of the session."""

    texts: Texts
    export: Callable[[str, int], Awaitable[bytes]]

    async def ingest(self, permitted: Permitted, limit: int) -> Ingested:
        """Store the text of at most ``limit`` bytes.

        Files and URLs are read in a thread, which may take minutes: a folder may be endless, and a file system may not
        answer. Cancelling the call ends the reading.

        Raises:
            SourceError: it cannot be read, or a path leads out of the client's reach.
            TextTooLarge: the text is larger; nothing was stored.
        """
        match permitted:
            case PermittedText(text):
                if len(text) > limit:  # there are at least as many bytes, so do not encode
                    raise TextTooLarge(limit, len(text))
                return Ingested(await self.texts.take(text, limit))
            case PermittedStored(name, digest):
                return Ingested(self.texts.stored(digest), {"variable": name})
            case PermittedVariable(name):
                data = await self.export(name, limit)
                return Ingested(await self.texts.take(data, limit), {"variable": name})
            case PermittedUrl(url, prefixes):
                return await self._told(await patiently(put_url, self.texts.files, url, prefixes, limit), [url], limit)
            case PermittedFiles(asked, reach):
                loaded = await patiently(put_asked, self.texts.files, asked, reach, limit)
                return await self._told(loaded, loaded.origin, limit)
            case never:
                assert_never(never)

    async def _told(self, loaded: LoadedSource, origin: list[str], limit: int) -> Ingested:
        """Record the source of the text, so that it can be reloaded, and store the table of its files."""
        notes: JsonObject = {"path": origin[0]} if len(origin) == 1 else {"paths": origin}
        if loaded.table:
            notes["files"] = {"count": loaded.files, "skipped": loaded.skipped}
            return Ingested(loaded.text, notes, await self.texts.take(loaded.table, limit))
        if loaded.shape is not None:
            notes["table"] = loaded.shape
        elif loaded.compression:
            notes["compression"] = loaded.compression
        return Ingested(loaded.text, notes)
