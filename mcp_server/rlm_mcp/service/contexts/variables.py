"""Variables of code: asked from the session's kernel, if it is already running."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from rlm_contexts.search.strategy import compile_pattern
from rlm_contexts.searches import LineMatch, ScanResult, SearchRequest
from rlm_contexts.shares import ShownShare
from rlm_ipc.errors import KernelBusy, ProtocolError, UnknownVariable
from rlm_ipc.messages import alike
from rlm_ipc.worker_requests import Export, Peek, Reply, Request, Scan, VariableRow, Variables
from rlm_mcp.service.sessions.sessions import Session
from rlm_memory import contexts
from rlm_memory.store import Store

_LIST_SECONDS = 1.0
"""How long a list waits for a kernel that runs a cell of a notebook."""
_ASK_SECONDS = 20.0
"""How long a question about one variable waits for the running cell."""


class KernelVariables:
    """The kernel variables of every session."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def rows(self, session: Session, texts: Collection[str] | None = None) -> list[VariableRow] | None:
        """List the variables; None while the kernel runs code and cannot be asked.

        ``texts`` are the names of the session's contexts, for a caller who knows them.
        """
        if session.kernel.busy:
            return None
        try:
            return await self._rows(session, texts)
        except KernelBusy:
            return None

    async def _rows(self, session: Session, texts: Collection[str] | None = None) -> list[VariableRow]:
        kernel = session.kernel
        if not kernel.alive:
            return []
        rows = await kernel.ask(lambda client, kernel_id: client.variables(kernel_id, wait_seconds=_LIST_SECONDS))
        # A context that is not yet in the kernel will take its name back, so no variable has that name.
        shadowing = kernel.bound.current(row.name for row in rows if row.shadows)
        unlisted = set(contexts.names(self._store, session.key) if texts is None else texts) - shadowing
        return [row for row in rows if row.name not in unlisted]

    async def row(self, session: Session, name: str) -> VariableRow:
        """Describe one, after the cell that runs."""
        rows: tuple[VariableRow, ...] = ()
        with suppress(ProtocolError):  # a kernel that lies has no variables
            found, _ = await self._ask(session, name, Variables())
            rows = found.variables
        for row in rows:
            if row.name == name:
                return row
        raise self.missing(session, name, [row.name for row in rows])

    async def export(self, session: Session, name: str, limit: int) -> bytes:
        """Return a variable as UTF-8 text; raises TextTooLarge when that has more than ``limit`` bytes."""
        _, (text,) = await self._ask(session, name, Export(name, limit))
        return text

    async def peek(self, session: Session, name: str, offset: int, limit: int, room: int) -> tuple[Sequence[str], int]:
        """Return the first lines of a page that have at most ``room`` characters, and how many lines there are."""
        found, _ = await self._ask(session, name, Peek(name, offset, limit, room, every=False))
        return found.lines[:limit], found.total_lines

    async def peek_every(self, session: Session, name: str, offset: int, limit: int, room: int) -> list[ShownShare]:
        """Return every line of a page, the longest cut so that all have at most ``room`` characters."""
        found, _ = await self._ask(session, name, Peek(name, offset, limit, room, every=True))
        return [ShownShare(*line) for line in zip(found.lines[:limit], found.chars, strict=False)]

    async def scan(self, session: Session, name: str, request: SearchRequest) -> ScanResult:
        """Search a variable's lines."""
        compile_pattern(request.pattern, request.syntax)  # so that a bad pattern gets the same message as for a context
        found, _ = await self._ask(session, name, alike(Scan, request, name=name))
        matches = (LineMatch(row.line, row.text, row.context, row.chars, row.context_cut) for row in found.matches)
        return ScanResult(tuple(matches), found.truncated, found.total, found.exact, next_line=None)

    async def delete(self, session: Session, name: str) -> None:
        """Delete a variable, like ``del``, after the running and queued cells."""
        async with session.kernel.turn.between_cells():
            known = [row.name for row in await self._rows(session)]
            if name not in known or not name.isidentifier() or keyword.iskeyword(name):
                raise self.missing(session, name, known)
            (execution,) = await session.kernel.execute(f"del {name}")
            with session.kernel.watched:
                await execution.result()
        session.kernel.names.discard(name)

    def missing(self, session: Session, name: str, others: Iterable[str]) -> UnknownVariable:
        """Return the error for an unknown variable, with the known ones and, if known, the reason why it is gone."""
        because = session.idled or session.kernel.notice
        known = contexts.names(self._store, session.key)
        return UnknownVariable(name, sorted({*known, *others}), because)

    async def _ask(self, session: Session, name: str, request: Request[Reply]) -> tuple[Reply, tuple[bytes, ...]]:
        if not session.kernel.alive:
            raise self.missing(session, name, [])
        session.kernel.turn.refuse_if_waiting()
        try:
            return await session.kernel.ask(
                lambda client, kernel: client.ask(kernel, request, wait_seconds=_ASK_SECONDS)
            )
        except UnknownVariable as error:
            raise self.missing(session, name, error.available) from error
