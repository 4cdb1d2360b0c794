"""Reads a policy file: plain YAML 1.2 values, and the position of each in the file.

Differences from PyYAML's ``safe_load``, each for a reason:

* ``off``, ``on``, ``yes`` and ``no`` are words, not booleans (``checkpoint: off`` must mean "off");
* a key given twice is an error, not a silent overwrite;
* anchors and aliases are refused: a few lines of them can expand to gigabytes;
* sequences become tuples, because policies are immutable.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import yaml

from rlm_sandbox.errors import PolicyFileError, PolicyProblem, PolicyUnreadableError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

MAX_FILE_BYTES = 256 * 1024
"""A policy file larger than this is refused before it is parsed."""

MAX_DEPTH = 16
"""Values nested deeper than this are refused: no field is, and parsing time grows with the square of the depth."""

FieldPath = tuple[str | int, ...]
"""The position of a value: mapping keys and sequence indexes, outermost first."""

YamlValue: TypeAlias = "str | int | float | bool | tuple[YamlValue, ...] | YamlMapping | None"
"""What a file may hold, before it is checked against the schema."""

YamlMapping: TypeAlias = "dict[str, YamlValue]"


@dataclass(frozen=True)
class Document:
    """The values of one policy file and the line of each (from 1)."""

    file: Path
    values: YamlMapping
    lines: dict[FieldPath, int] = field(default_factory=dict)

    def line_of(self, path: FieldPath) -> int:
        """Return the line of ``path``, or of the nearest enclosing value that is in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


class _Loader(yaml.SafeLoader):
    """SafeLoader with the core schema of YAML 1.2 and without aliases."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise yaml.MarkedYAMLError(
                problem="anchors and aliases are not used in policies; write the value out",
                problem_mark=event.start_mark,
            )
        if self._depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested more than {MAX_DEPTH} levels deep; no field of a policy is",
                problem_mark=event.start_mark,
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


_NUMBER = list("-+0123456789.")
_CORE_SCHEMA = (
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("tag:yaml.org,2002:int", r"[-+]?(?:0|[1-9][0-9_]*)", _NUMBER),
    ("tag:yaml.org,2002:float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?", _NUMBER),
)
_Loader.yaml_implicit_resolvers = {}  # not those of YAML 1.1
for _tag, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})$"), _first)


class _Reader:
    """Turns a YAML node tree into plain values and records the line of each."""

    def __init__(self, file: Path, loader: _Loader) -> None:
        self._file = file
        self._loader = loader
        self.lines: dict[FieldPath, int] = {}

    def value(self, node: yaml.Node, path: FieldPath) -> YamlValue:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            return tuple(self.value(item, (*path, index)) for index, item in enumerate(node.value))
        return cast("YamlValue", self._loader.construct_object(node))

    def mapping(self, node: yaml.MappingNode, path: FieldPath) -> YamlMapping:
        self.lines.setdefault(path, node.start_mark.line + 1)
        values: YamlMapping = {}
        for key_node, value_node in node.value:
            key = key_node.value
            line = key_node.start_mark.line + 1
            here = (*path, key) if isinstance(key, str) else path
            if not isinstance(key, str) or not key_node.tag.endswith(":str"):
                raise _problem(self._file, line, path, f"{key!r} is not a field name; write a word")
            if key in values:
                raise _problem(self._file, line, here, f"given twice (also on line {self.lines[here]}); keep one")
            self.lines[here] = line
            values[key] = self.value(value_node, here)
        return values


def dotted(path: FieldPath) -> str:
    """Return ``("limits", "memory_bytes")`` as ``limits.memory_bytes``; indexes as ``[3]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def message_of(detail: ErrorDetails) -> str:
    """Return what is wrong with a value. For our own validators the error itself, without pydantic's prefix."""
    return str(detail["ctx"]["error"]) if detail["type"] == "value_error" else detail["msg"]


def _problem(file: Path, line: int, path: FieldPath, message: str) -> PolicyFileError:
    return PolicyFileError(file, [PolicyProblem(line, dotted(path), message)])


def _text(file: Path) -> str:
    """Return the file's text; every way this can fail is a PolicyFileError."""
    try:
        raw = _bytes(file)
        return raw.decode("utf-8")
    except OSError as error:
        raise unreadable(file, f"cannot be read ({error.strerror}); check its path and permissions") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise _problem(file, line, (), "not UTF-8 text; save the file as UTF-8") from None


def _bytes(file: Path) -> bytes:
    """Return the bytes of a regular file; anything else at that path is opened without waiting for it, and refused."""
    _refuse_special(file, os.stat(file))  # opening a device can have an effect
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as stream:
        _refuse_special(file, os.fstat(stream.fileno()))
        raw = stream.read(MAX_FILE_BYTES + 1)
    if len(raw) > MAX_FILE_BYTES:
        raise unreadable(file, f"larger than {MAX_FILE_BYTES} bytes; this is not a policy file")
    return raw


def _refuse_special(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise unreadable(file, "cannot be read (it is not a regular file); check its path and permissions")


def unreadable(file: Path, message: str) -> PolicyUnreadableError:
    """Return the error for a file that is useless as a whole."""
    return PolicyUnreadableError(file, [PolicyProblem(1, "", message)])


def read_document(file: Path) -> Document:
    """Read one policy file; PolicyFileError (with line and field) for anything that is not a mapping."""
    text = _text(file)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise _problem(file, 1, (), "a policy is a mapping, such as `limits: {cell_seconds: 30}`")
        reader = _Reader(file, loader)
        values = reader.mapping(node, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        detail = " ".join(part for part in (error.context, error.problem) if part)
        raise _problem(file, line, (), f"not valid YAML: {detail}; correct this line") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _problem(file, 1, (), f"not valid YAML: {error}; correct the file") from None
    return Document(file, values, reader.lines)
