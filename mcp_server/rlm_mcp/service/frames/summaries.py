"""Asks a model for summaries of frames that ended without one, if the parent session's policy says so."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_ipc.messages import JsonObject
from rlm_mcp.service.queries.answering import QueryService, shown, waiting
from rlm_mcp.service.queries.providers import Providers
from rlm_mcp.service.sessions.sessions import Sessions
from rlm_memory.frames import rows, summaries
from rlm_memory.store import Store


class FrameSummaries:
    """Asks for summaries. `QueryService` takes the answers, like those of other queries."""

    def __init__(self, store: Store, live: Sessions, queries: QueryService, providers: Providers) -> None:
        self._store, self._live, self._queries, self._providers = store, live, queries, providers

    def ask(self, frames: Sequence[int]) -> None:
        """Ask for summaries of frames that have just ended; call this in the transaction that ended them."""
        for key in frames:
            above = rows.get(self._store, key).parent
            near = None if above is None else rows.nearest_session(self._store, above)
            session = None if near is None else self._live.of_key(near.session)
            if session is not None and session.policy.llm.summaries:
                row = self._queries.ask_for_summary(session, key)
                if row is not None and row.mode == "provider":
                    self._providers.asked(session, [row])

    def pending(self, frame: int) -> list[JsonObject]:
        """List the summary queries that an agent may answer, like other queries."""
        asked = summaries.asked_for(self._store, frame)
        return [shown(waiting(row)) for row in asked if row.mode != "provider"]
