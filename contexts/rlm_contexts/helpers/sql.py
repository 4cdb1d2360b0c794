"""The job `sql`: run SQL over texts with DuckDB.

Each text is a table with its name: data in CSV, JSON or Parquet with its own columns, any other text as its lines
(`line`, counted from 0, and `text`). DuckDB may open only these files, by its own rules as well as the walls', loads
nothing, and no statement can change that.
"""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import duckdb

from rlm_contexts.helpers.protocol import FaultKind, JobFault, JobSpec, RunSql, SqlPart, SqlTable

Say = Callable[[SqlPart], None]

_ROWS = 1000  # per message
_BATCH = 4 << 20  # bytes of a text that become lines at once
_LONGEST_ROW = 16 << 20  # bytes of a JSON object; DuckDB reserves buffers of this size
_MARKS = ("quote", "escape", "comment", "new_line")
_DIALECT = "Quote, Escape, Comment, NewLineDelimiter, Columns, DateFormat, TimestampFormat"
_UNUSED = "(empty)"
"""How DuckDB reports a mark that a file does not use."""
_STANDARD = (None, "%Y-%m-%d", "%Y-%m-%d %H:%M:%S")
"""Formats that a date or a time has by default. Named, they do not admit `infinity`."""
_LINES = """
    SELECT $first + position - 1, if(suffix(part, chr(13)), part[:-2], part)
    FROM (SELECT unnest(parts) AS part, generate_subscripts(parts, 1) AS position
          FROM (SELECT string_split($text, chr(10)) AS parts))
"""
_MEND = "correct it and load it again, or read its lines with eval_code"
MEMORY_SHARE = 0.7
"""How much of the process's memory DuckDB may use; the rest is for the rows on their way out."""


def run(spec: JobSpec, request: RunSql, say: Say) -> None:
    """Write the columns, then the rows, of the last statement; ``spec`` has the memory, and the tables' files."""
    try:
        connection = connect(spec.files, spec.memory)
        for table in request.tables:
            _define(connection, table)
        connection.execute("SET lock_configuration = true")
        _answer(connection.execute(request.sql), say)
    except duckdb.OutOfMemoryException as problem:
        raise MemoryError from problem
    except duckdb.Error as problem:
        raise JobFault(FaultKind.QUERY, str(problem)) from problem


def connect(files: Sequence[str], memory: int) -> duckdb.DuckDBPyConnection:
    """Return an empty in-memory database that can open ``files`` and nothing else."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "threads": min(4, os.cpu_count() or 1),
        "async_threads": 1,
        "memory_limit": f"{int(memory * MEMORY_SHARE)}B",
        "temp_directory": "",
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "allow_persistent_secrets": False,
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET enable_external_access = false")
    return connection


def reader(connection: duckdb.DuckDBPyConnection, table: SqlTable) -> str | None:
    """Return the table function that reads a data file; None for a text that is only lines."""
    path = _literal(table.path)
    kind = table.format
    if kind == "parquet":
        return f"read_parquet({path})"
    if kind in {"csv", "tsv"}:
        given = f"{path}, header = true, delim = {_literal(table.delimiter)}, skip = {table.skip}"
        return f"read_csv({given}, {_examined(connection, given)})"
    if kind in {"json", "jsonl"}:
        layout = {"jsonl": "newline_delimited", "json": "array" if table.array else "unstructured"}[kind]
        largest = _LONGEST_ROW if kind == "jsonl" else max(_LONGEST_ROW, table.size + 1)
        return f"read_json({path}, format = '{layout}', sample_size = -1, maximum_object_size = {largest})"
    return None


def plain(value: Any) -> Any:
    """Return a value as JSON; what JSON lacks becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return str(value)


def _define(connection: duckdb.DuckDBPyConnection, table: SqlTable) -> None:
    name = '"' + table.name.replace('"', '""') + '"'
    read = reader(connection, table)
    if read is not None:
        try:
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {read}")
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as problem:
            what = f"{table.name} cannot be read as {table.format}: {_flaw(table) or _first_line(problem, table.path)}"
            raise JobFault(FaultKind.SOURCE, what, _MEND) from problem
        return
    connection.execute(f"CREATE TABLE {name} (line BIGINT, text VARCHAR)")
    first = 0
    for text in _batches(Path(table.path)):
        connection.execute(f"INSERT INTO {name} {_LINES}", {"first": first, "text": text})
        first += text.count("\n") + 1


def _flaw(table: SqlTable) -> str:
    """Return which line, from 0, is unlike the others; empty if none is, or it is another format."""
    with suppress(csv.Error), Path(table.path).open(encoding="utf-8-sig", newline="") as file:
        if table.format == "jsonl":
            odd = next((number for number, line in enumerate(file) if line.strip() and not _is_json(line)), None)
            return "" if odd is None else f"line {odd} is no JSON"
        if table.format in {"csv", "tsv"}:
            rows = csv.reader(islice(file, table.skip, None), delimiter=table.delimiter)
            width = len(next(rows, []))
            for row in rows:
                if row and len(row) != width:
                    return f"the header has {width} cells, and line {table.skip + rows.line_num - 1} has {len(row)}"
    return ""


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _first_line(problem: duckdb.Error, path: str) -> str:
    """Return what DuckDB says, without the path of the stored text, which means nothing to anyone."""
    return str(problem).partition("\n")[0].replace(f' "{path}"', "").strip()


def _examined(connection: duckdb.DuckDBPyConnection, given: str) -> str:
    """Return how to read a CSV file: its dialect, and the types that all its lines have.

    A view without them would look at all lines again, in one thread, in each statement.
    """
    try:
        found = connection.execute(f"SELECT {_DIALECT} FROM sniff_csv({given}, sample_size = -1)").fetchall()
    except duckdb.Error:  # of an empty file, too; the view finds out what it is
        return "sample_size = -1"
    [(*marks, columns, day, moment)] = found
    texts = dict(zip(_MARKS, ["" if mark == _UNUSED else str(mark) for mark in marks], strict=True))
    texts |= {name: text for name, text in (("dateformat", day), ("timestampformat", moment)) if text not in _STANDARD}
    types = ", ".join(f"{_literal(column['name'])}: {_literal(column['type'])}" for column in columns)
    options = [f"{name} = {_literal(text)}" for name, text in texts.items()]
    return ", ".join(["auto_detect = false", f"columns = {{{types}}}", *options])


def _batches(path: Path) -> Iterator[str]:
    """Yield a text in pieces of whole lines, without the newline at the end of each."""
    with path.open("rb") as file:
        while batch := file.read(_BATCH):
            yield (batch + file.readline()).removesuffix(b"\n").decode()


def _answer(result: duckdb.DuckDBPyConnection, say: Say) -> None:
    columns = _distinct([str(column[0]) for column in result.description or ()])
    types = [str(column[1]) for column in result.description or ()]
    say(SqlPart(columns=tuple(columns), types=tuple(types)))
    while rows := result.fetchmany(_ROWS):
        say(SqlPart(rows=tuple(plain(row) for row in rows)))
    sys.stdout.flush()


def _distinct(names: list[str]) -> list[str]:
    """Return column names made unique: rows are also kept as objects."""
    taken: list[str] = []
    for name in names:
        forms = chain([name], (f"{name}_{number}" for number in count(2)))
        taken.append(next(form for form in forms if form not in taken))
    return taken


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
