"""Variables that code made: asked of the session's kernel, and only of a kernel that is there already."""

from __future__ import annotations

import keyword
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlm_contexts.search.strategy import compile_pattern
from rlm_contexts.searches import ScanResult, Syntax
from rlm_contexts.shares import ShownShare
from rlm_ipc.errors import KernelBusy, UnknownVariable
from rlm_ipc.messages import JsonObject, read
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.errors import ToolFault, variable_not_found
from rlm_mcp.service.sessions.sessions import Session
from rlm_memory import contexts
from rlm_memory.store import Store

__all__ = ["KernelVariable", "KernelVariables"]

_LIST_SECONDS = 1.0
"""How long a list waits for a kernel that runs a cell of a notebook."""
_ASK_SECONDS = 20.0
"""How long a question about one variable waits for the running cell."""


@dataclass(frozen=True, slots=True)
class KernelVariable:
    """A variable as its kernel describes it, which may be untrue. One that ``shadows`` has the name of a context."""

    name: str
    type: str
    size: int | None
    line_count: int | None
    preview: str
    shadows: bool

    @classmethod
    def read(cls, row: JsonObject) -> KernelVariable:
        """Read it of what the kernel says."""
        size, lines = row.get("size"), row.get("line_count")
        return cls(
            str(row.get("name", "")),
            str(row.get("type", "")),
            size if isinstance(size, int) else None,
            lines if isinstance(lines, int) else None,
            str(row.get("preview", "")),
            bool(row.get("shadows")),
        )


Question = Callable[[SupervisorClient, str], Awaitable[Any]]


class KernelVariables:
    """The kernel variables of every session."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def rows(self, session: Session) -> list[KernelVariable] | None:
        """List them; None while the kernel runs code and cannot be asked."""
        if session.kernel.busy:
            return None
        if not session.kernel.alive:
            return []
        try:
            rows = await session.kernel.ask(lambda client, kernel: client.variables(kernel, wait_seconds=_LIST_SECONDS))
        except KernelBusy:
            return None
        known, shadowed = set(contexts.names(self._store, session.key)), await session.kernel.shadowed()
        found = map(KernelVariable.read, rows)
        return [row for row in found if row.name in shadowed or row.name not in known]

    async def export(self, session: Session, name: str, limit: int) -> bytes:
        """Return a variable as UTF-8 text; raises TextTooLarge when that has more than ``limit`` bytes."""
        data: bytes = await self._ask(
            session,
            name,
            lambda client, kernel: client.export_variable(kernel, name, limit, wait_seconds=_ASK_SECONDS),
        )
        return data

    async def peek(self, session: Session, name: str, offset: int, limit: int, room: int) -> tuple[Sequence[str], int]:
        """Return the first lines of a page that have at most ``room`` characters, and how many lines there are."""
        found = await self._peek(session, name, offset, limit, room, every=False)
        return [str(text) for text, _ in found["lines"][:limit]], int(found["total_lines"])

    async def peek_every(self, session: Session, name: str, offset: int, limit: int, room: int) -> list[ShownShare]:
        """Return every line of a page, the longest cut so that all have at most ``room`` characters."""
        found = await self._peek(session, name, offset, limit, room, every=True)
        return [ShownShare(str(text), int(chars)) for text, chars in found["lines"][:limit]]

    async def _peek(
        self, session: Session, name: str, offset: int, limit: int, room: int, *, every: bool
    ) -> JsonObject:
        found: JsonObject = await self._ask(
            session,
            name,
            lambda client, kernel: client.peek_variable(
                kernel, name, offset, limit, room, every=every, wait_seconds=_ASK_SECONDS
            ),
        )
        return found

    async def scan(
        self,
        session: Session,
        name: str,
        pattern: str,
        *,
        context_lines: int,
        max_matches: int,
        seconds: float,
        options: Mapping[str, bool | int],
    ) -> ScanResult:
        """Search a variable's lines."""
        syntax = Syntax(*(bool(options.get(field.name)) for field in fields(Syntax)))
        compile_pattern(pattern, syntax)  # so that a bad one is refused in the same words as for a context
        found: JsonObject = await self._ask(
            session,
            name,
            lambda client, kernel: client.scan_variable(
                kernel,
                name,
                pattern,
                context_lines=context_lines,
                max_matches=max_matches,
                seconds=seconds,
                options=options,
                wait_seconds=_ASK_SECONDS,
            ),
        )
        return read(ScanResult, {**found, "next_line": None})

    async def delete(self, session: Session, name: str) -> None:
        """Delete a variable, as ``del`` does."""
        known = [row.name for row in await self.rows(session) or ()]
        if name not in known or not name.isidentifier() or keyword.iskeyword(name):
            raise self.missing(session, name, known)
        async with session.kernel.exclusive():
            execution = await session.kernel.execute(f"del {name}")
            async with session.kernel.watched():
                await execution.result()
        session.kernel.names.discard(name)

    def missing(self, session: Session, name: str, others: list[str]) -> ToolFault:
        """Say that the session has no such variable, which it has, and what became of it if that is known."""
        because = ""
        if session.expired:
            because = "the session was idle for too long and everything in it was removed; load it again"
        elif session.kernel.notice:
            because = session.kernel.notice
        known = contexts.names(self._store, session.key)
        return variable_not_found(name, sorted({*known, *others}), because)

    async def _ask(self, session: Session, name: str, question: Question) -> Any:
        if not session.kernel.alive:
            raise self.missing(session, name, [])
        try:
            return await session.kernel.ask(question)
        except UnknownVariable as error:
            raise self.missing(session, name, list(error.available)) from error
