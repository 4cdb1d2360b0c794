"""SQL over contexts, run by DuckDB in a helper process for each query."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from rlm_contexts.errors import HelperDied, MissingExtra
from rlm_contexts.helpers.job import Job, JobLimits, messages
from rlm_contexts.helpers.protocol import RunSql, SqlPart, SqlTable
from rlm_ipc.extras import extra_command
from rlm_ipc.messages import JsonObject
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.progress import patiently
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.text_access import Texts
from rlm_mcp.service.tool_answers import ToolAnswer, encode

_SECONDS = 40.0
_AT_ONCE = 2
_OVERHEAD = 400
"""Characters of an answer beside its rows."""


class Tables:
    """Contexts as tables."""

    def __init__(self, texts: Texts, named: Contexts) -> None:
        self._texts = texts
        self._named = named
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def query(self, session: Session, names: list[str], sql: str) -> ToolAnswer:
        """Run SQL over the named contexts; rows that do not fit into the answer are stored as JSON lines."""
        policy = session.policy.limits
        async with self._slots:
            with ExitStack() as pins:
                tables = [await self._table(session, name, pins) for name in names]
                job = Job(RunSql(sql, tuple(tables)), [Path(table.path) for table in tables])
                limits = JobLimits(_SECONDS, policy.memory_bytes, policy.content_bytes)
                rows = _Rows(policy.answer_chars - _OVERHEAD)
                try:
                    await patiently(rows.take, job, limits)
                except MissingExtra as missing:
                    raise MissingExtra(f"{missing}: query needs DuckDB: {extra_command('query')}") from missing
        return rows.answer()

    async def _table(self, session: Session, name: str, pins: ExitStack) -> SqlTable:
        content = self._named.get(session, name, "SQL runs only on loaded texts")
        shape = await self._texts.shape(content)
        path = pins.enter_context(self._texts.files.leased(self._texts.stored(content.digest)))
        if shape is None:
            return SqlTable(name, str(path), "text", content.size)
        return SqlTable(name, str(path), shape.format, content.size, shape.delimiter, shape.skip, shape.array)


class _Rows:
    """The rows of a query: in memory as long as they fit into an answer, then in a file of JSON lines."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._columns: list[str] = []
        self._first: list[list[Any]] = []
        self._count = 0
        self._spool: Path | None = None

    def take(self, job: Job[SqlPart], limits: JobLimits) -> None:
        """Run the job and take its rows; called in a thread."""
        try:
            with closing(messages(job, limits)) as said:
                self._columns = _columns(next(said, SqlPart()))
                self._fill(row for message in said for row in _checked(message, len(self._columns)))
        except BaseException:
            if self._spool is not None:
                self._spool.unlink(missing_ok=True)
            raise

    def answer(self) -> ToolAnswer:
        """Columns and rows, and how many there are."""
        fields: JsonObject = {"columns": self._columns, "row_count": self._count, "rows": self._first}
        if self._spool is not None:
            fields["truncated"] = True
        return ToolAnswer(fields, ("rows",), spool=self._spool)

    def _fill(self, rows: Iterator[list[Any]]) -> None:
        for row in rows:
            self._count += 1
            self._first.append(row)
            self._room -= len(encode({"": row})) - 4
            if self._room < 0:
                self._write(rows)

    def _write(self, rest: Iterator[list[Any]]) -> None:
        descriptor, name = tempfile.mkstemp(prefix="rlm-rows-")
        self._spool = Path(name)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            for row in self._first:
                file.write(self._line(row))
            for row in rest:
                self._count += 1
                file.write(self._line(row))

    def _line(self, row: list[Any]) -> str:
        return encode(dict(zip(self._columns, row, strict=True))) + "\n"


def _columns(part: SqlPart) -> list[str]:
    """Return the names of the columns. The process reads hostile data, so its answer is not trusted."""
    if part.columns is None:
        raise HelperDied("returned a malformed answer")
    return list(part.columns)


def _checked(part: SqlPart, width: int) -> tuple[list[Any], ...]:
    if not all(isinstance(row, list) and len(row) == width for row in part.rows):
        raise HelperDied("returned a malformed answer")
    return part.rows
