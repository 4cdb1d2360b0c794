"""The job `preview`: the contents of a Parquet file, with its first rows as readable text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import duckdb

from rlm_contexts.helpers.protocol import FaultKind, JobFault, JobSpec, PreviewTable, SqlTable, TablePreview
from rlm_contexts.helpers.sql import connect, plain, reader

_LONGEST_CELL = 200
_COLUMNS = 100


def run(spec: JobSpec, request: PreviewTable, say: Callable[[TablePreview], None]) -> None:
    """Write rows, columns with their types, and the text; ``spec`` has the one file."""
    [path] = spec.files
    try:
        connection = connect(spec.files, spec.memory)
        read = reader(connection, SqlTable("", path, "parquet"))
        described = connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
        [(rows,)] = connection.execute(f"SELECT count(*) FROM {read}").fetchall()
        first = connection.execute(f"SELECT * FROM {read} LIMIT ?", [request.show]).fetchall()
    except duckdb.OutOfMemoryException as problem:
        raise MemoryError from problem
    except duckdb.Error as problem:
        copy = rf"(?i:( at end of| in| of|) file:? '?{re.escape(path)}'?)"  # its path means nothing to anyone
        reason = re.sub(copy, "", str(problem).partition("\n")[0])
        what = f"the Parquet file is damaged ({reason})"
        raise JobFault(FaultKind.SOURCE, what, "give the path of a complete one") from problem
    columns = {str(name): str(kind) for name, kind, *_ in described}
    head = [f"Parquet: {rows:,} rows; the first {len(first)}", " | ".join(columns)]
    lines = [" | ".join(_cell(value) for value in row) for row in first]
    listed = dict(list(columns.items())[:_COLUMNS])
    say(TablePreview(rows, listed, "\n".join([*head, *lines]) + "\n"))


def _cell(value: Any) -> str:
    shown = str(plain(value)) if value is not None else ""
    shown = shown if len(shown) <= _LONGEST_CELL else shown[:_LONGEST_CELL] + "…"
    return shown.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
