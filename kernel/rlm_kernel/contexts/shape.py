"""What a text holds when it is data: JSON, JSON lines or a table, with its columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any

from .text import Text

_MOST_JSON = 16 << 20  # bytes of a JSON document that are parsed to describe it
_SAMPLE = 50  # lines looked at
_LONGEST = 1 << 16  # characters of a line looked at
_MOST_COLUMNS = 100
_DELIMITERS = {"csv": ",;|", "tsv": "\t"}


def shape_of(text: Text, hint: str = "") -> dict[str, Any] | None:
    """What is known of the data in a text.

    Args: hint, a content type or the name of the file; comma-separated tables are recognised by it only, as
    any text may hold commas.
    Returns: format (json, jsonl, csv, tsv), then `columns` and `rows` of a table, `keys` or `items` of a
    document; None when it is none of these.
    """
    if not text.line_count:
        return None
    start = text.peek(0, _SAMPLE, _LONGEST)
    lines = [line for line in start.text.split("\n") if line.strip()]
    if not lines:
        return None
    if lines[0].lstrip()[:1] in {"{", "["}:
        return _json(text, lines, whole=not start.has_more and not start.cut_line)
    ending = hint.lower().rpartition(".")[2]
    return _table(text, lines, ending) if ending in _DELIMITERS else None


def _json(text: Text, lines: Sequence[str], *, whole: bool) -> dict[str, Any] | None:
    rows = [_parsed(line) for line in (lines if whole else lines[:-1])]
    if rows and text.line_count > 1 and all(isinstance(row, (dict, list)) for row in rows):
        columns = list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))
        return {"format": "jsonl", "rows": text.line_count, "columns": columns[:_MOST_COLUMNS]}
    if text.size > _MOST_JSON:
        return {"format": "json", "note": f"over {_MOST_JSON >> 20} MiB: not parsed"}
    document = _parsed(text.content)
    if isinstance(document, dict):
        return {"format": "json", "keys": list(document)[:_MOST_COLUMNS]}
    if not isinstance(document, list):
        return None
    columns = list(dict.fromkeys(key for row in document[:_SAMPLE] if isinstance(row, dict) for key in row))
    return {"format": "json", "items": len(document), "columns": columns[:_MOST_COLUMNS]}


def _parsed(text: str) -> object:
    """The value, or None for what is no JSON."""
    try:
        value: object = json.loads(text)
        return value
    except (ValueError, RecursionError):
        return None


def _table(text: Text, lines: Sequence[str], kind: str) -> dict[str, Any] | None:
    delimiter = max(_DELIMITERS[kind], key=lines[0].count)
    try:
        columns = next(csv.reader(lines, delimiter=delimiter), [])
    except csv.Error:
        return None
    # A quoted cell may hold newlines, and to know takes a pass over all.
    rows = f"<={text.line_count - 1}" if any('"' in line for line in lines) else text.line_count - 1
    return {"format": kind, "rows": rows, "columns": [column.strip() for column in columns[:_MOST_COLUMNS]]}
