"""The job `preview`: what a Parquet file holds, and its first rows as a text that can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from rlm_kernel.confined.sql import connect, plain, reader

_LONGEST_CELL = 200
_COLUMNS = 100


def prepare(_request: dict[str, Any]) -> None:
    """Nothing: DuckDB is imported with this module."""


def run(request: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Say rows, columns with their types, and the text.

    ``request`` has one path in `files`, how many rows to `show`, and `memory`.
    """
    [path] = request["files"]
    read = reader({"path": path, "format": "parquet"})
    try:
        connection = connect(request["files"], request["memory"])
        described = connection.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
        [(rows,)] = connection.execute(f"SELECT count(*) FROM {read}").fetchall()
        first = connection.execute(f"SELECT * FROM {read} LIMIT ?", [request["show"]]).fetchall()
    except duckdb.OutOfMemoryException as problem:
        raise MemoryError from problem
    except duckdb.Error as problem:
        what = f"the Parquet file is damaged ({problem})"
        say({"fault": "source", "message": what, "advice": "give the path of a complete one"})
        return
    columns = {str(name): str(kind) for name, kind, *_ in described}
    head = [f"Parquet: {rows:,} rows; the first {len(first)}", " | ".join(columns)]
    lines = [" | ".join(_cell(value) for value in row) for row in first]
    shown = dict(list(columns.items())[:_COLUMNS])
    say({"rows": rows, "columns": shown, "text": "\n".join([*head, *lines]) + "\n"})


def _cell(value: Any) -> str:
    shown = str(plain(value)) if value is not None else ""
    shown = shown if len(shown) <= _LONGEST_CELL else shown[:_LONGEST_CELL] + "…"
    return shown.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
