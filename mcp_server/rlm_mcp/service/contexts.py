"""Names for loaded texts: load, unload, attach, and the outputs that answers had no room for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rlm_kernel.contexts.changes import changes
from rlm_kernel.contexts.errors import TextTooLarge
from rlm_kernel.contexts.holding import holding
from rlm_mcp.hello import ClientHello
from rlm_mcp.service.answers import Answer
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.names import check_context_name, is_handle
from rlm_mcp.service.progress import Progress, telling
from rlm_mcp.service.sessions import Clock, Session
from rlm_mcp.service.sources import Taken, take
from rlm_mcp.service.texts import Texts
from rlm_mcp.service.variables import KernelVariables
from rlm_memory import contexts, handles
from rlm_memory.contexts import ContextRow, Origin, StoredContent
from rlm_memory.errors import QuotaExceeded, StoreFault
from rlm_memory.handles import HandleRow
from rlm_memory.store import Store
from rlm_sandbox.policy_urls import is_url

__all__ = ["TABLE_OF", "Contexts", "Source"]

TABLE_OF = "table of files of"
"""Metadata of a table of files: the context that it tells of."""
_MOST_OUTPUTS = 16
"""Kept outputs of a session; the oldest make room."""


@dataclass(frozen=True)
class Source:
    """Where a text comes from: exactly one of the three is set; ``paths`` may be patterns."""

    content: str | None = None
    paths: tuple[str, ...] = ()
    variable: str | None = None


class Contexts:
    """The contexts of every session."""

    def __init__(self, store: Store, texts: Texts, variables: KernelVariables, clock: Clock) -> None:
        self._store = store
        self._texts = texts
        self._variables = variables
        self._clock = clock

    async def load(
        self,
        session: Session,
        name: str,
        source: Source,
        content_type: str,
        metadata: dict[str, Any],
        hello: ClientHello,
        progress: Progress,
    ) -> Answer:
        """Store a text and let ``name`` stand for it, in place of whatever it stood for."""
        name = check_context_name(name)
        with holding():
            async with telling(progress, name):
                taken = await self._ingest(session, source, hello)
            shadowed = await session.kernel.shadowed()
            row = await self._put(session, name, taken, content_type, metadata)
        fields: dict[str, Any] = {"name": name, "line_count": row.line_count, "size": row.size, "type": row.type}
        if taken.table:
            fields["files"] = row.metadata["files"]
        fields["expires_in"] = _expiry(session.policy.limits.idle_seconds)
        return Answer(fields | _told_of(name, shadowed, "code reads the text under this name; its variable is gone"))

    async def refresh(self, session: Session, name: str, hello: ClientHello, progress: Progress) -> Answer:
        """Load a context again from the files it came from, and tell what changed."""
        with holding():
            return await self._refresh(session, name, hello, progress)

    async def _refresh(self, session: Session, name: str, hello: ClientHello, progress: Progress) -> Answer:
        row = contexts.get(self._store, session.key, name)
        source = Source(paths=_noted_paths(row.metadata))
        if not source.paths:
            said = f"{name!r} did not come from a file, so there is nothing to load again"
            raise ToolFault("cannot_read", said, "load it under the same name with load_context")
        async with telling(progress, name):
            taken = await self._ingest(session, source, hello)
        fields: dict[str, Any] = {"name": name, "changed": taken.text.digest != row.digest}
        if not fields["changed"]:
            return Answer({**fields, "line_count": row.line_count, "size": row.size})
        old, new = await self._texts.open(row.digest), await self._texts.open(taken.text.digest)
        found = await asyncio.to_thread(changes, old, new)
        fields |= _told_of(name, await session.kernel.shadowed(), "code reads the new text; its variable is gone")
        kept = {key: value for key, value in row.metadata.items() if key not in {*taken.notes, "replacements"}}
        after = await self._put(session, name, taken, row.type, kept)
        fields |= {"line_count": after.line_count, "size": after.size, "lines_before": row.line_count}
        fields |= {"added": found.added, "removed": found.removed, "first_changed_line": found.first_line}
        return Answer({**fields, "appended": found.appended, "diff": "\n".join(found.diff)}, ("diff",))

    async def unload(self, session: Session, name: str) -> Answer:
        """Let go of a name: a context with the handles registered for it, a handle, or a kernel variable."""
        shadowed = await session.kernel.shadowed()
        if is_handle(name):
            self._unload_handle(session, name)
        elif self._unload_context(session, name):
            session.kernel.changed()
        else:
            await self._variables.delete(session, name)
        self._texts.close_unused()
        return Answer({"unloaded": name} | _told_of(name, shadowed, "the text is gone; the variable of code stays"))

    def find(self, session: Session, name: str) -> StoredContent | None:
        """Return the text that a name or handle stands for, noting that it is read; None: no such context.

        Raises:
            UnknownHandle: it is a handle that this session may not resolve.
        """
        if is_handle(name):
            return handles.resolve(self._store, name, session.row).content
        row = contexts.find(self._store, session.key, name)
        if row is None:
            return None
        with suppress(StoreFault):  # a full disk keeps nobody from reading
            contexts.touch(self._store, session.key, name, self._clock())
        return row.content

    def known_as(self, session: Session, name: str) -> str | None:
        """Return the session's own name for what a name or handle stands for; None for a handle that gave it none.

        Raises:
            UnknownHandle: it is a handle that this session may not resolve.
        """
        return self._name_by(session, handles.resolve(self._store, name, session.row)) if is_handle(name) else name

    def attach(self, session: Session, given: HandleRow) -> str:
        """Return the session's name for what a handle leads to: the one that it has got by it, else a new one.

        A text of its own that happens to be equal is another one: whoever lets go of either keeps the other.
        """
        known = self._name_by(session, given)
        if known is not None:
            return known
        wanted = given.name
        name = wanted if self._is_free(session, wanted) else self._free_name(session, wanted + "_{}", 2)
        contexts.put(
            self._store,
            session.key,
            name,
            given.content,
            now=self._clock(),
            origin=Origin.ATTACHED,
            handle=given.handle,
        )
        session.kernel.changed()
        return name

    def _name_by(self, session: Session, given: HandleRow) -> str | None:
        rows = contexts.of_session(self._store, session.key)
        return next((row.name for row in rows if row.handle == given.handle or _is_owned(row, given)), None)

    async def keep_output(self, session: Session, whole: str | Path) -> str:
        """Store what an answer has no room for and return its name, ``out_N``. The oldest ones make room."""
        most = session.policy.limits.content_bytes
        with holding():
            stored = await self._texts.keep(whole, most)
            content = StoredContent(stored.digest, stored.size, stored.line_count, "output", {})
            with self._store.transaction():
                self._make_room(session, stored.size, most)
                name = self._free_name(session, "out_{}", self._store.count(f"output {session.id}") + 1)
                contexts.put(self._store, session.key, name, content, now=self._clock(), origin=Origin.OUTPUT)
        session.kernel.changed()
        return name

    async def _put(
        self, session: Session, name: str, taken: Taken, content_type: str, metadata: Mapping[str, Any]
    ) -> ContextRow:
        """Let ``name`` stand for a stored text, and another name for its table of files if it has one."""
        stored, notes = taken.text, dict(taken.notes)
        if stored.replacements:
            notes["replacements"] = stored.replacements
        quota = session.policy.limits.content_bytes
        listed = await self._texts.take(taken.table, quota) if taken.table else None
        with self._store.transaction():
            self._drop_table(session, name)
            table = self._free_name(session, f"{name}_files" + "{}", "")
            if listed is not None:
                notes["files"] = {**notes["files"], "table": table}
            content = StoredContent(
                stored.digest, stored.loaded, stored.line_count, content_type, {**notes, **metadata}
            )
            row = contexts.put(self._store, session.key, name, content, now=self._clock(), quota=quota)
            if listed is not None:  # after it: what the name stood for before counts no more
                told = StoredContent(listed.digest, listed.size, listed.line_count, "json", {TABLE_OF: name})
                contexts.put(self._store, session.key, table, told, now=self._clock(), quota=quota)
        session.kernel.changed()
        return row

    def _drop_table(self, session: Session, name: str) -> str | None:
        """Let go of the table of files of a context, if it has one; returns its name."""
        row = contexts.find(self._store, session.key, name)
        files = row.metadata.get("files") if row else None
        table = files.get("table") if isinstance(files, dict) else None
        listed = contexts.find(self._store, session.key, table) if isinstance(table, str) else None
        if listed is None or listed.metadata.get(TABLE_OF) != name:
            return None
        contexts.drop(self._store, session.key, [listed.name])
        return listed.name

    async def _ingest(self, session: Session, source: Source, hello: ClientHello) -> Taken:
        """Store the text of ``source``."""
        quota = session.policy.limits.content_bytes
        if source.content is not None:
            self._refuse_larger(session, len(source.content), quota)
            return Taken(await self._texts.take(source.content, quota))
        if source.paths:
            try:
                return await take(self._texts.files, source.paths, session, hello, quota)
            except TextTooLarge as large:
                self._refuse_larger(session, large.size or 0, quota)
                raise
        variable = source.variable or ""
        content = self.find(session, variable)
        if content is not None and variable not in await session.kernel.shadowed():
            return Taken(self._texts.stored(content.digest), {"variable": variable})
        data = await self._variables.export(session, variable, quota)
        return Taken(await self._texts.take(data, quota), {"variable": variable})

    def _refuse_larger(self, session: Session, size: int, quota: int) -> None:
        """Refuse what cannot fit before it is read; the exact check is made when the name is put in."""
        if size > quota:
            used = contexts.charged_bytes(self._store, session.key)
            raise QuotaExceeded(session.id, used=used, asked=size, limit=quota)

    def _unload_context(self, session: Session, name: str) -> bool:
        with self._store.transaction():
            table = self._drop_table(session, name)
            known = contexts.drop(self._store, session.key, [name])
            for gone in (name, table):
                if gone is not None:
                    handles.drop_named(self._store, session.key, gone)
        return bool(known)

    def _unload_handle(self, session: Session, handle: str) -> None:
        """Let go of the names that came by it; the owner deletes it, too."""
        row = handles.resolve(self._store, handle, session.row)
        with self._store.transaction():
            if row.session == session.key:
                handles.drop(self._store, handle)
            contexts.drop_attached(self._store, session.key, handle)
        session.kernel.changed()

    def _make_room(self, session: Session, size: int, most: int) -> None:
        rows = contexts.of_session(self._store, session.key)
        kept = [row for row in rows if row.origin is Origin.OUTPUT]
        while kept and (len(kept) >= _MOST_OUTPUTS or sum(row.size for row in kept) + size > most):
            contexts.drop(self._store, session.key, [kept.pop(0).name])

    def _is_free(self, session: Session, name: str) -> bool:
        return name not in session.kernel.names and contexts.find(self._store, session.key, name) is None

    def _free_name(self, session: Session, form: str, number: int | Literal[""]) -> str:
        """The first free name of a form, from a number on, or first without one."""
        while not self._is_free(session, form.format(number)):
            number = (number or 1) + 1
        return form.format(number)


def _is_owned(row: ContextRow, given: HandleRow) -> bool:
    """Whether a handle is of this very name, and leads to what the name still stands for."""
    return (row.session, row.name, row.digest) == (given.session, given.name, given.digest)


def _told_of(name: str, shadowed: Collection[str], what: str) -> dict[str, str]:
    return {"notice": what} if name in shadowed else {}


def _noted_paths(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The files that a context came from; what is noted there may also come from a client."""
    paths = metadata.get("paths", [metadata.get("path")])
    if not isinstance(paths, list) or not all(isinstance(path, str) and _is_place(path) for path in paths):
        return ()
    return tuple(paths)


def _is_place(path: str) -> bool:
    return is_url(path) or Path(path).is_absolute()


def _expiry(seconds: float) -> str:
    amount, unit = (seconds / 60, "minute") if seconds >= 60 else (seconds, "second")
    return f"{amount:g} {unit}{'' if amount == 1 else 's'} if not accessed"
