"""`load_context`: store a text from any source under a name of a session.

Five steps, each taken once, in this order:

    resolve    what the call means, as a typed source (`sources`)       reads nothing
    authorise  may this client load that into this session?             `authority`, the only place that decides
    ingest     its bytes into the content store (`ingesting`)           slow; can be cancelled
    record     the name, in one transaction and within the quota        from then on it is loaded
    attach     the kernel learns of it when it is idle                  never a reason for the load to fail

Before `record` nothing of the session has changed. A load that fails or is cancelled leaves at most a stored text that
no row names, and the collector removes that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from rlm_contexts.errors import SourceError, SourceGone, TextTooLarge
from rlm_contexts.store.pins import holding
from rlm_contexts.text.changes import Changes, changes
from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.service.contexts.authority import Authority, Permitted
from rlm_mcp.service.contexts.ingesting import NOTED, Ingested, Ingestion
from rlm_mcp.service.contexts.names import SessionNames
from rlm_mcp.service.contexts.sources import Load, resolve_again
from rlm_mcp.service.progress import Progress, telling_of_load
from rlm_mcp.service.sessions.kernel_proxy import KernelProxy
from rlm_mcp.service.sessions.names import check_context_name
from rlm_memory.contexts import ContextRow

_FROM_ELSEWHERE = "to load it from another place, call load_context with the same name"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A completed load.

    ``replaced`` counts byte sequences that were not UTF-8. ``shadowed``: a variable of code had the name before.
    """

    row: ContextRow
    has_table: bool
    replaced: int
    shadowed: bool


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A reloaded context: before, and after if its text has changed."""

    before: ContextRow
    loaded: Loaded | None = None
    changes: Changes | None = None


@dataclass(frozen=True, slots=True)
class Loader:
    """Loads texts into one session for one client."""

    rules: Authority
    store: Ingestion
    names: SessionNames
    kernel: KernelProxy
    progress: Progress

    async def load(self, asked: Load) -> Loaded:
        """Load a text under a name, replacing any earlier one.

        Raises:
            ToolFault: the name or the source is none, or the client may not load it.
            QuotaExceeded, TextTooLarge: it has no room.
            SourceError: it cannot be read.
        """
        name = check_context_name(asked.name)
        permitted = await self.rules.permit(asked.source)
        with holding():
            ingested = await self._ingest(name, permitted)
            return await self._record(name, ingested, asked.content_type, asked.metadata or {})

    async def refresh(self, name: str) -> Refreshed:
        """Reload a context from its source. An equal text changes nothing.

        Raises: as `load`; ToolFault also when it came neither from files nor from a URL, UnknownVariable.
        """
        before = self.names.get(name)
        with holding():
            try:
                permitted = await self.rules.permit(resolve_again(name, before.metadata))
                ingested = await self._ingest(name, permitted)
            except SourceError as lost:
                advice = _FROM_ELSEWHERE if isinstance(lost, SourceGone) else lost.hint
                raise type(lost)(lost.what, f"{name} is as it was loaded; {advice}") from lost
            if ingested.text.digest == before.digest:
                return Refreshed(before)
            old, new = [await self.store.texts.open(digest) for digest in (before.digest, ingested.text.digest)]
            found = await asyncio.to_thread(changes, old, new)
            kept = {key: value for key, value in before.metadata.items() if key not in NOTED}
            return Refreshed(before, await self._record(name, ingested, before.type, kept), found)

    async def mend(self, name: str) -> bool:
        """Store a damaged text again, if its source still has it. Return whether it has.

        Raises: as `refresh`.
        """
        before = self.names.get(name)
        permitted = await self.rules.permit(resolve_again(name, before.metadata))
        with holding():
            return (await self._ingest(name, permitted)).text.digest == before.digest

    async def _ingest(self, name: str, permitted: Permitted) -> Ingested:
        try:
            async with telling_of_load(self.progress, name):
                return await self.store.ingest(permitted, self.names.quota)
        except TextTooLarge as large:
            if large.size is None:
                raise  # its full size is unknown, because reading stopped before
            raise self.names.quota_exceeded(large.size) from large

    async def _record(self, name: str, ingested: Ingested, content_type: str, metadata: Mapping[str, Any]) -> Loaded:
        # Asked before: from the moment of recording the kernel has an earlier text under the name, which tells nothing.
        shadowed = name in await self.kernel.shadowed()
        row = self.names.record(name, ingested, content_type, metadata)
        self.kernel.changed()
        return Loaded(row, ingested.table is not None, ingested.text.replacements, shadowed)
