"""Handles: sharing a text with other sessions, and using a shared one."""

from __future__ import annotations

from rlm_ipc.errors import UnknownVariable
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.names import check_session_id, is_handle
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory import contexts, handles, sessions
from rlm_memory.contexts import ContextOrigin
from rlm_memory.handles import Audience, Grant
from rlm_memory.store import Store

EVERYONE = "*"


class Handles:
    """The handles of every session."""

    def __init__(self, store: Store, texts: Contexts, clock: Clock) -> None:
        self._store, self._texts, self._clock = store, texts, clock

    def register(
        self, session: Session, name: str, content_type: str | None, share_with: list[str] | None
    ) -> ToolAnswer:
        """Make a handle for a context and grant it; without ``share_with`` to the workspace's sessions."""
        if is_handle(name):
            name = self._attach(session, name)
        row = contexts.find(self._store, session.key, name)
        if row is None:
            unknown = UnknownVariable(name, contexts.names(self._store, session.key))
            hint = "only loaded contexts have handles; load a variable as one with load_context(name, variable=...)"
            raise ToolFault(unknown.code, str(unknown), hint, **unknown.details())
        content = row.content
        if content_type:
            content = contexts.StoredContent(row.digest, row.size, row.line_count, content_type, row.metadata)
        grants = _grants(session, share_with)
        made = handles.register(
            self._store,
            session.row,
            name,
            content,
            grants,
            charged=row.origin is ContextOrigin.LOADED,
            now=self._clock(),
        )
        shared = [grant.subject or EVERYONE for grant in grants] or ["this session only"]
        return ToolAnswer({"handle": made.handle, "var_name": name, "type": made.type, "shared_with": shared})

    def resolve(self, session: Session, handle: str) -> ToolAnswer:
        """Give the session a name for the text behind a handle."""
        row = handles.resolve(self._store, handle, session.row)
        name = self._attach(session, handle)
        return ToolAnswer(
            {
                "handle": handle,
                "var_name": name,
                "session": sessions.name_of(self._store, row.session),
                "type": row.type,
            }
        )

    def _attach(self, session: Session, handle: str) -> str:
        return self._texts.attach(session, handles.resolve(self._store, handle, session.row))


def _grants(session: Session, share_with: list[str] | None) -> list[Grant]:
    if share_with is None:
        workspace = session.row.workspace
        return [Grant(Audience.WORKSPACE, workspace)] if workspace else []
    if EVERYONE in share_with:
        return [Grant(Audience.EVERYONE)]
    return [Grant(Audience.SESSION, check_session_id(name)) for name in dict.fromkeys(share_with)]
