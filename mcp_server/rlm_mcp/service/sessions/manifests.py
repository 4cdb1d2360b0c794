"""What the manifest of a snapshot says of a session, besides its variables and texts."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from rlm_ipc.version import VERSION
from rlm_mcp.formats.snapshot import Manifest, Missing, SavedContext, Writer
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.saved_rows import saved_cell, saved_query, saved_turn
from rlm_mcp.service.sessions.saved_variables import SavedVariables
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_memory import model_turns as turns
from rlm_memory import queries
from rlm_memory.store import Store

__all__ = ["Manifests"]


class Manifests:
    """Makes manifests of what the rows of sessions say."""

    def __init__(self, store: Store, cells: Journal, clock: Clock) -> None:
        self._store, self._journal, self._clock = store, cells, clock

    def of(
        self,
        session: Session,
        saved: SavedVariables,
        texts: list[SavedContext],
        lost: Sequence[Missing],
        writer: Writer,
    ) -> Manifest:
        """The manifest of a file that has these variables and texts."""
        return Manifest(
            program=VERSION,
            python=platform.python_version(),
            created_at=self._clock(),
            session=session.id,
            policy=session.row.policy,
            policy_text=session.pinned.text,
            workspace=session.row.workspace,
            variables=saved.variables,
            contexts=texts,
            queries=[saved_query(row) for row in queries.of_session(self._store, session.key)],
            journal=[saved_cell(entry) for entry in self._journal.of_session(session.key)],
            turns=[saved_turn(row) for row in turns.of_session(self._store, session.key)],
            missing=[*saved.missing, *lost],
            files=writer.files,
        )
