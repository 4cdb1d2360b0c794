"""Rows as objects: the fields of a frozen data class are the columns that a statement reads or writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from sqlite3 import Row
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

Value = str | bytes | int | float | None
"""What a column may hold."""
T = TypeVar("T")


def from_row(kind: type[T], row: Row) -> T:
    """Return a row as an object; lists and mappings are read from JSON. An empty column has its field's default."""
    values = dict(zip(row.keys(), row, strict=True))
    for name, read in _readers(cast("Hashable", kind)).items():
        values[name] = read(values[name])
    return kind(**values)


def values_of(record: Any) -> dict[str, Value]:
    """Return the fields of an object as the parameters of a statement; lists and mappings as JSON."""
    values = {name: getattr(record, name) for name in record.__slots__}
    return {name: json.dumps(v) if isinstance(v, list | tuple | dict) else v for name, v in values.items()}


@cache
def _readers(kind: Hashable) -> Mapping[str, Callable[[Any], Any]]:
    """Map those fields that SQLite does not return as they are to what converts them."""
    hints = get_type_hints(kind)
    found = ((field.name, _reader(hints[field.name], field.default)) for field in fields(cast("Any", kind)))
    return {name: read for name, read in found if read is not None}


def _reader(hint: Any, default: Any) -> Callable[[Any], Any] | None:
    (kind,) = (part for part in get_args(hint) if part is not NoneType) if isinstance(hint, UnionType) else (hint,)
    origin = get_origin(kind) or kind
    if origin is tuple:
        return lambda text: tuple(json.loads(text or "null") or ())
    if origin in (dict, Mapping, Sequence):
        return lambda text: json.loads(text or "null")
    if isinstance(kind, type) and issubclass(kind, bool | Enum):
        return kind
    return None if default in (MISSING, None) else lambda value: default if value is None else value
