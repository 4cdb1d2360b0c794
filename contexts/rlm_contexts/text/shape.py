"""The shape of a text that is data: JSON, JSON lines or a table, with its columns; cheap, whatever it holds."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from rlm_contexts.text.text import Text
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject

_PARSED_WHOLE = 1 << 20  # bytes up to which a JSON document is parsed completely: small texts become large objects
_SAMPLE = 50  # lines looked at
_LONGEST = 1 << 16  # characters looked at
_MOST_COLUMNS = 100
_DELIMITERS = {"csv": ",;|", "tsv": "\t"}
_PACKED = {".gz", ".bz2", ".xz", ".zst"}
_HEADING = re.compile("==> .* <==")  # before each file of several, so the text is not one table
_GAP = re.compile(r"[\s,:]*")


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known about data.

    Attributes:
        format: json, jsonl, csv, tsv or parquet.
        facts: `rows` and `columns` of a table, `keys` or `items` of a document.
        delimiter: of csv and tsv.
        skip: lines of comment before the header of csv and tsv.
        array: whether a JSON document is an array of rows.
    """

    format: str
    facts: JsonObject
    delimiter: str = ""
    skip: int = 0
    array: bool = False

    def to_dict(self) -> JsonObject:
        """Return the shape as callers see it."""
        return {"format": self.format, **self.facts}


def hint_of(content_type: str, metadata: Mapping[str, Any]) -> str:
    """Return what the loading of a text says about its format."""
    return content_type if content_type in _DELIMITERS else str(metadata.get("path"))


def shape_of(text: Text, hint: str = "") -> Shape | None:
    """Return the shape of the data in a text, from its beginning; None if it is not recognised as data.

    Args: hint, a content type or the name of the file. Comma-separated tables are recognised only by it, because any
    text may hold commas.
    """
    if not text.line_count:
        return None
    start = text.peek(0, _SAMPLE, _LONGEST)
    every = start.text.removeprefix("\ufeff").split("\n")
    lines = [line for line in every if line.strip()]
    if not lines:
        return None
    if lines[0].lstrip()[:1] in {"{", "["}:
        return _json(text, lines, whole=not start.has_more and not start.cut_line)
    if _HEADING.fullmatch(lines[0]):
        return None
    ending = _ending(hint)
    return _table(text, every, ending) if ending in _DELIMITERS else None


def _ending(hint: str) -> str:
    path = PurePath(hint.lower())
    path = path.with_suffix("") if path.suffix in _PACKED else path
    return path.suffix.removeprefix(".") or path.name


def _json(text: Text, lines: Sequence[str], *, whole: bool) -> Shape | None:
    rows = [_parsed(line) for line in (lines if whole else lines[:-1])]
    if rows and text.line_count > 1 and all(isinstance(row, (dict, list)) for row in rows):
        return Shape("jsonl", {"rows": text.line_count, "columns": _columns(rows)})
    if text.size > _PARSED_WHOLE:
        return _beginning(text.peek(0, _SAMPLE, _LONGEST).text.lstrip())
    document = _parsed(text.content)
    if isinstance(document, dict):
        return Shape("json", {"keys": list(document)[:_MOST_COLUMNS]})
    if not isinstance(document, list):
        return None
    return Shape("json", {"items": len(document), "columns": _columns(document[:_SAMPLE])}, array=True)


def _parsed(text: str) -> object:
    """Return the value, or None if it is not JSON."""
    try:
        value: object = json.loads(text)
        return value
    except (ValueError, RecursionError):
        return None


def _columns(rows: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(key for row in rows if isinstance(row, dict) for key in row))[:_MOST_COLUMNS]


def _beginning(start: str) -> Shape | None:
    """Return the shape of a large document, by the complete values at its beginning; None when it is not JSON."""
    parts = list(_parts(start))
    if start[0] == "[":
        facts = {"items": f">={len(parts)}", "columns": _columns(parts)}
        return Shape("json", facts, array=True) if parts else None
    keys = [part for part in parts[::2] if isinstance(part, str)]
    return Shape("json", {"keys": keys[:_MOST_COLUMNS], "note": "large: its first keys"}) if keys else None


def _parts(start: str) -> Iterator[object]:
    """Yield the values one level down in the beginning of a document, as far as they are complete."""
    decoder, at = json.JSONDecoder(), 1
    while at < len(start):
        try:
            value, at = decoder.raw_decode(start, _GAP.match(start, at).end())  # type: ignore[union-attr]  # it always matches
        except (ValueError, RecursionError):
            return
        yield value


def _table(text: Text, lines: Sequence[str], kind: str) -> Shape | None:
    skip = next((number for number, line in enumerate(lines) if line.strip() and not line.startswith("#")), 0)
    delimiter = max(_DELIMITERS[kind], key=lines[skip].count)
    try:
        columns = next(csv.reader(lines[skip:], delimiter=delimiter), [])
    except csv.Error:
        return None
    most = text.line_count - skip - 1
    # A quoted cell may hold newlines, and finding out takes a pass over everything.
    rows = f"<={most}" if any('"' in line for line in lines) else most
    return Shape(kind, {"rows": rows, "columns": [c.strip() for c in columns[:_MOST_COLUMNS]]}, delimiter, skip)
