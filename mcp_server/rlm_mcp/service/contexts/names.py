"""The names of texts in one session: only rows, no slow operations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Literal

from rlm_contexts.text.model import StoredText
from rlm_ipc.errors import UnknownVariable
from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.service.contexts.ingesting import Ingested
from rlm_mcp.service.sessions.names import is_handle
from rlm_mcp.service.sessions.sessions import Clock
from rlm_mcp.service.unchanged import Unchanged
from rlm_memory import contexts, handles
from rlm_memory.contexts import ContextOrigin, ContextRow, StoredContent
from rlm_memory.errors import QuotaExceeded, StoreFault
from rlm_memory.handles import HandleRow
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

TABLE_OF = "table of files of"
"""Metadata of a table of files: the context that it describes."""
_TOUCH_SECONDS = 1.0
"""How far the time at which a text was last read may lag behind."""
_MOST_OUTPUTS = 16
"""How many outputs a session keeps; the oldest make room."""


@dataclass(frozen=True, slots=True)
class SessionNames:
    """The names in one session.

    ``defined`` holds the globals of its code, which generated names must not hide. ``quota`` is the most bytes of
    texts that the session may hold.
    """

    store: Store
    rows: Unchanged
    session: SessionRow
    defined: Collection[str]
    quota: int
    clock: Clock

    # --- reading ----------------------------------------------------------------------------------

    def get(self, name: str) -> ContextRow:
        """Return the row of a name.

        Raises:
            UnknownVariable: the session has none of that name.
        """
        row = contexts.find(self.store, self.session.key, name)
        if row is None:
            raise UnknownVariable(name, contexts.names(self.store, self.session.key))
        return row

    def find(self, name: str) -> StoredContent | None:
        """Return the text that a name or handle stands for, noting that it is read; None: no such context.

        Raises:
            UnknownHandle: it is a handle that this session may not resolve.
        """
        if is_handle(name):
            return handles.resolve(self.store, name, self.session).content
        row = self.rows.read(contexts.find, self.session.key, name)
        if row is None:
            return None
        if abs((now := self.clock()) - row.last_accessed_at) >= _TOUCH_SECONDS:
            with suppress(StoreFault):  # reading must work on a full disk
                contexts.touch(self.store, self.session.key, name, now)
        return row.content

    def known_as(self, name: str) -> str | None:
        """Return the session's own name for what a name or handle stands for; None for a handle that gave it none.

        Raises:
            UnknownHandle: it is a handle that this session may not resolve.
        """
        return self._name_by(handles.resolve(self.store, name, self.session)) if is_handle(name) else name

    def quota_exceeded(self, size: int) -> QuotaExceeded:
        """Return the error for a text of ``size`` bytes that exceeds the session's quota."""
        used = contexts.charged_bytes(self.store, self.session.key)
        return QuotaExceeded(self.session.id, used=used, asked=size, limit=self.quota)

    # --- writing ----------------------------------------------------------------------------------

    def record(self, name: str, ingested: Ingested, content_type: str, metadata: Mapping[str, Any]) -> ContextRow:
        """Let ``name`` stand for a stored text, and a free name for its table of files if it has one.

        Raises:
            QuotaExceeded: the session would hold more than its quota; nothing has changed.
        """
        text, notes = ingested.text, dict(ingested.notes)
        if text.replacements:
            notes["replacements"] = text.replacements
        with self.store.transaction():
            self._drop_table(name)
            table = "" if ingested.table is None else self._free_name(f"{name}_files" + "{}", "")
            if table:
                notes["files"] = {**notes["files"], "table": table}
            # The client's own metadata wins: it may correct what was guessed.
            content = StoredContent(text.digest, text.loaded, text.line_count, content_type, {**notes, **metadata})
            row = self._put(name, content, quota=self.quota)
            if (listed := ingested.table) is not None:  # after it: what the name stood for before counts no more
                told = StoredContent(listed.digest, listed.size, listed.line_count, "json", {TABLE_OF: name})
                self._put(table, told, quota=self.quota)
        return row

    def record_output(self, text: StoredText) -> str:
        """Give an output a name, ``out_N``, and return it. The oldest outputs make room."""
        content = StoredContent(text.digest, text.size, text.line_count, "output", {})
        with self.store.transaction():
            self._make_room(text.size)
            name = self._free_name("out_{}", self.store.count(f"output {self.session.id}") + 1)
            self._put(name, content, origin=ContextOrigin.OUTPUT)
        return name

    def put_under(self, name: str, content: StoredContent) -> str:
        """Let a name, or one like it that is free, stand for a stored text; returns it.

        Raises:
            QuotaExceeded: the session would hold more than its quota; nothing has changed.
        """
        known = contexts.find(self.store, self.session.key, name)
        if known is None or known.digest != content.digest:
            name = name if self._is_free(name) else self._free_name(name + "_{}", 2)
            self._put(name, content, quota=self.quota)
        return name

    def attach(self, given: HandleRow) -> tuple[str, bool]:
        """Return the session's name for what a handle leads to, and whether that is a new one.

        The session's own equal text is a different one: deleting either keeps the other.
        """
        known = self._name_by(given)
        if known is not None:
            return known, False
        name = given.name if self._is_free(given.name) else self._free_name(given.name + "_{}", 2)
        self._put(name, given.content, origin=ContextOrigin.ATTACHED, handle=given.handle)
        return name, True

    def drop(self, name: str) -> bool:
        """Delete a context, with its table of files and their handles. Return whether it existed."""
        with self.store.transaction():
            table = self._drop_table(name)
            known = contexts.drop(self.store, self.session.key, [name])
            for gone in (name, table):
                if gone is not None:
                    handles.drop_named(self.store, self.session.key, gone)
        return bool(known)

    def drop_handle(self, handle: str) -> None:
        """Delete the names that refer to a handle; the owner also deletes the handle.

        Raises:
            UnknownHandle: it is a handle that this session may not resolve.
        """
        row = handles.resolve(self.store, handle, self.session)
        with self.store.transaction():
            if row.session == self.session.key:
                handles.drop(self.store, handle)
            contexts.drop_attached(self.store, self.session.key, handle)

    def _put(
        self,
        name: str,
        content: StoredContent,
        *,
        origin: ContextOrigin = ContextOrigin.LOADED,
        handle: str | None = None,
        quota: int | None = None,
    ) -> ContextRow:
        now = self.clock()
        return contexts.put(
            self.store, self.session.key, name, content, now=now, origin=origin, handle=handle, quota=quota
        )

    def _drop_table(self, name: str) -> str | None:
        """Delete the table of files of a context, if it has one. Return its name."""
        row = contexts.find(self.store, self.session.key, name)
        files = row.metadata.get("files") if row else None
        table = files.get("table") if isinstance(files, dict) else None
        listed = contexts.find(self.store, self.session.key, table) if isinstance(table, str) else None
        if listed is None or listed.metadata.get(TABLE_OF) != name:
            return None
        contexts.drop(self.store, self.session.key, [listed.name])
        return listed.name

    def _make_room(self, size: int) -> None:
        rows = contexts.of_session(self.store, self.session.key)
        kept = [row for row in rows if row.origin is ContextOrigin.OUTPUT]
        while kept and (len(kept) >= _MOST_OUTPUTS or sum(row.size for row in kept) + size > self.quota):
            contexts.drop(self.store, self.session.key, [kept.pop(0).name])

    def _name_by(self, given: HandleRow) -> str | None:
        rows = contexts.of_session(self.store, self.session.key)
        return next((row.name for row in rows if row.handle == given.handle or _is_owned(row, given)), None)

    def _is_free(self, name: str) -> bool:
        return name not in self.defined and contexts.find(self.store, self.session.key, name) is None

    def _free_name(self, form: str, number: int | Literal[""]) -> str:
        """Return the first free name of a form, counting from a number, or first without one."""
        while not self._is_free(form.format(number)):
            number = (number or 1) + 1
        return form.format(number)


def _is_owned(row: ContextRow, given: HandleRow) -> bool:
    """Tell whether a handle belongs to this name and to its current text."""
    return (row.session, row.name, row.digest) == (given.session, given.name, given.digest)
