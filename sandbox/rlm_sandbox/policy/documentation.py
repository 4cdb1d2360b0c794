"""Describes the policy schema: as rows, and as a Markdown table for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rlm_sandbox.policy.model import Policy
from rlm_sandbox.policy.sizes import GIB, KIB, MIB


@dataclass(frozen=True)
class FieldDoc:
    """One field of the policy schema, ready to show."""

    name: str
    """Dotted name, such as ``limits.memory_bytes``."""
    type: str
    """Accepted values: ``size``, ``number``, ``list of text``, ``core | all | compat`` ..."""
    default: str
    description: str


def policy_fields() -> list[FieldDoc]:
    """Return every field a policy file can set, in the order of the schema."""
    return list(_fields(Policy, ""))


def schema_table() -> str:
    """Return the schema as a Markdown table: field, type, default, meaning."""
    rows = [("field", "type", "default", "meaning"), ("---",) * 4]
    rows += [(f"`{doc.name}`", doc.type, f"`{doc.default}`", doc.description) for doc in policy_fields()]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in rows)


def _fields(schema: type[Any], prefix: str) -> Iterator[FieldDoc]:
    types = get_type_hints(schema)
    for field in fields(schema):
        name = field.name
        default: Any = field.default
        if is_dataclass(types[name]):
            yield from _fields(types[name], f"{prefix}{name}.")
        else:
            size = name.endswith("_bytes")
            yield FieldDoc(
                f"{prefix}{name}",
                "size" if size else _type_name(types[name]),
                _size_text(default) if size else _default_text(default),
                field.metadata["description"],
            )


def _type_name(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(str(choice) for choice in get_args(annotation))
    if get_origin(annotation) is tuple:
        inner = _type_name(get_args(annotation)[0])
        return f"list of {inner}"
    names = {str: "text", bool: "true | false", int: "whole number", float: "number"}
    return names.get(annotation, "text or nothing")


def _default_text(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "nothing" if value is None else str(value) or '""'


def _size_text(size: int) -> str:
    """Return ``536870912`` as ``512 MiB``: in the largest unit that divides it."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit} {name}"
    return str(size)
