"""The contexts of every session: load, reload, unload, attach, and outputs that did not fit into answers."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from rlm_contexts.errors import ContextError
from rlm_contexts.store.pins import holding
from rlm_ipc.messages import JsonObject
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.contexts.authority import Authority
from rlm_mcp.service.contexts.ingesting import Ingestion
from rlm_mcp.service.contexts.loading import Loader
from rlm_mcp.service.contexts.names import SessionNames
from rlm_mcp.service.contexts.sources import Load
from rlm_mcp.service.contexts.variables import KernelVariables
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.progress import Progress
from rlm_mcp.service.sessions.expiry import duration, rests_until
from rlm_mcp.service.sessions.names import is_handle
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_mcp.service.text_access import Texts
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_mcp.service.unchanged import Unchanged
from rlm_memory import contexts
from rlm_memory.contexts import StoredContent
from rlm_memory.errors import QuotaExceeded
from rlm_memory.handles import HandleRow
from rlm_memory.store import Store

_DECODE = (
    "if it has another encoding, such as utf-16 or latin-1, read it in code with open(path, encoding=...).read(), "
    "and load that with variable=; a database or another binary file is not a text"
)


class Contexts:
    """The contexts of every session."""

    def __init__(
        self, store: Store, texts: Texts, variables: KernelVariables, live: Iterable[Session], clock: Clock
    ) -> None:
        self._live = live
        self._store = store
        self._rows = Unchanged(store)
        self._texts, self._variables, self._clock = texts, variables, clock

    async def load(self, session: Session, asked: Load, client: ClientInfo, progress: Progress) -> ToolAnswer:
        """Store a text under a name; raises what `Loader.load` does."""
        done = await self._loader(session, client, progress).load(asked)
        row = done.row
        fields = {"name": row.name, "line_count": row.line_count, "size": row.size, "type": row.type}
        if done.has_table:
            fields["files"] = row.metadata["files"]
        fields["expires_in"] = self._expires_in(session)
        notices = []
        if done.replaced:
            notices.append(f"the source is not entirely UTF-8: {done.replaced:,} sequences of its bytes became U+FFFD")
            notices.append(_DECODE)
        if done.shadowed:
            notices.append("in code this name is the text now; the variable is deleted")
        if notices:
            fields["notice"] = "; ".join(notices)
        return ToolAnswer(fields)

    def _expires_in(self, session: Session) -> str:
        """Say how long the session keeps its texts if nobody uses it, at rest too."""
        now = self._clock()
        until = rests_until(self._store, session.key, session.policy, now + session.policy.limits.idle_seconds)
        return "not while a goal is open" if until is None else f"{duration(until - now)} if not accessed"

    async def refresh(self, session: Session, name: str, client: ClientInfo, progress: Progress) -> ToolAnswer:
        """Reload a context from its source, and report the changes; raises what `Loader.refresh` does."""
        done = await self._loader(session, client, progress).refresh(name)
        fields: JsonObject = {"name": name, "changed": done.loaded is not None}
        if done.loaded is None or done.changes is None:
            return ToolAnswer({**fields, "line_count": done.before.line_count, "size": done.before.size})
        if done.loaded.shadowed:
            fields["notice"] = "in code this name is the new text now; the variable is deleted"
        row, found = done.loaded.row, done.changes
        fields |= {"line_count": row.line_count, "size": row.size, "lines_before": done.before.line_count}
        fields |= {"added": found.added, "removed": found.removed, "first_changed_line": found.first_line}
        return ToolAnswer({**fields, "appended": found.appended, "diff": "\n".join(found.diff)}, ("diff",))

    async def mend(self, session: Session, digest: str, client: ClientInfo, progress: Progress) -> bool:
        """Reload a damaged text of the session from its source, and give it to every kernel that has it.

        Returns whether the text is there now.
        """
        if not await self._stored_again(session, digest, client, progress):
            return False
        for live in self._live:
            if live.kernel.bound.renew(digest):
                live.kernel.changed()
        return True

    async def _stored_again(self, session: Session, digest: str, client: ClientInfo, progress: Progress) -> bool:
        loader = self._loader(session, client, progress)
        for row in contexts.of_session(self._store, session.key):
            if row.digest == digest:
                with suppress(ContextError, ToolFault, QuotaExceeded):
                    if await loader.mend(row.name):
                        return True
        return False

    async def unload(self, session: Session, name: str) -> ToolAnswer:
        """Delete a name: a context with its handles, a handle, or a kernel variable."""
        shadowed, names = await session.kernel.shadowed(), self._names(session)
        if is_handle(name):
            names.drop_handle(name)
            session.kernel.changed()
        elif names.drop(name):
            session.kernel.changed()
        else:
            await self._variables.delete(session, name)
        self._texts.close_unused()
        fields = {"unloaded": name}
        if name in shadowed:
            fields["notice"] = "the text is unloaded; the variable of this name is kept"
        return ToolAnswer(fields)

    def find(self, session: Session, name: str) -> StoredContent | None:
        """Return the text that a name or handle stands for; see `SessionNames.find`."""
        return self._names(session).find(name)

    def get(self, session: Session, name: str, because: str) -> StoredContent:
        """Return the text that a name or handle stands for, as `find`; ``because`` says why it must be a text."""
        if (content := self.find(session, name)) is not None:
            return content
        said = f"{name!r} is not a loaded text, and {because}"
        known = contexts.names(self._store, session.key)
        hint = "use one of `available`, or load the variable as a text: load_context with variable="
        if not known:
            hint = "nothing is loaded in this session; load it with load_context; for a Python variable, with variable="
        raise ToolFault("variable_not_found", said, hint, name=name, available=known)

    def known_as(self, session: Session, name: str) -> str | None:
        """Return the session's own name for what a name or handle stands for; see `SessionNames.known_as`."""
        return self._names(session).known_as(name)

    def attach(self, session: Session, given: HandleRow) -> str:
        """Return the session's name for what a handle leads to: the one that it has got by it, else a new one."""
        name, is_new = self._names(session).attach(given)
        if is_new:
            session.kernel.changed()
        return name

    def put_under(self, session: Session, name: str, content: StoredContent) -> str:
        """Let a name, or one like it that is free, stand for a stored text; returns it.

        Raises:
            QuotaExceeded: the session would hold more than its quota.
        """
        found = self._names(session).put_under(name, content)
        session.kernel.changed()
        return found

    async def keep_output(self, session: Session, whole: str | Path) -> str:
        """Store output that does not fit into an answer, and return its name, ``out_N``. The oldest make room."""
        with holding():
            stored = await self._texts.keep(whole, session.policy.limits.content_bytes)
            name = self._names(session).record_output(stored)
        session.kernel.changed()
        return name

    def _names(self, session: Session) -> SessionNames:
        quota = session.policy.limits.content_bytes
        return SessionNames(self._store, self._rows, session.row, session.kernel.names, quota, self._clock)

    def _loader(self, session: Session, client: ClientInfo, progress: Progress) -> Loader:
        names, kernel = self._names(session), session.kernel
        rules = Authority(client, session.row, session.policy, names, kernel)
        ingestion = Ingestion(self._texts, partial(self._variables.export, session))
        return Loader(rules, ingestion, names, kernel, progress)
