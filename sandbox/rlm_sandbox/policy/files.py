"""Finds, reads and merges policy files.

A policy file ``extends`` another one and names only what differs. A list replaces the parent's, unless it
is written as ``{add: [...], remove: [...]}``. Every problem is reported with file, line and dotted field.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from rlm_sandbox.errors import PolicyFileError, PolicyProblem, UnknownPolicyError
from rlm_sandbox.policy.model import POLICY_NAME, Policy
from rlm_sandbox.policy.places import is_path, policy_directories
from rlm_sandbox.policy.validation import checked
from rlm_sandbox.policy.yaml_document import (
    Document,
    FieldPath,
    YamlMapping,
    YamlValue,
    dotted,
    message_of,
    read_document,
)

MAX_PARENTS = 16
"""A longer chain of ``extends`` is a mistake."""


def policy_names(*, directories: Sequence[Path] | None = None) -> list[str]:
    """Return the names that `load_policy` knows, sorted."""
    places = policy_directories() if directories is None else directories
    return sorted({file.stem for place in places for file in place.glob("*.yaml")})


def load_policy(name_or_path: str | Path, *, directories: Sequence[Path] | None = None) -> Policy:
    """Read a policy by name (``default``) or by path (it has a ``/`` or ends in ``.yaml``).

    Raises:
        UnknownPolicyError: there is no policy of that name.
        PolicyFileError: the file does not hold a policy.
    """
    return read_policy(name_or_path, directories=directories)[0]


def read_policy(
    name_or_path: str | Path, *, directories: Sequence[Path] | None = None
) -> tuple[Policy, tuple[Path, ...]]:
    """Read a policy as `load_policy` does. Return also the files that it was made from."""
    places = tuple(policy_directories() if directories is None else directories)
    text = os.fspath(name_or_path)
    file = Path(text).expanduser() if isinstance(name_or_path, Path) or is_path(text) else _find(text, places)
    documents = _chain(file, places)
    merged = _merged(documents)
    return _validated(merged.values, merged.origin), tuple(document.file for document in documents)


def _find(name: str, places: Sequence[Path], after: Path | None = None) -> Path:
    """Return the first ``name``.yaml in ``places``; with ``after``, the first one after that file.

    A user's ``default.yaml`` can thus extend the ``default`` it replaces.
    """
    files = [place / f"{name}.yaml" for place in places] if POLICY_NAME.fullmatch(name) else []
    if after in files:
        files = files[files.index(after) + 1 :]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise UnknownPolicyError(name, policy_names(directories=places), places)
    return found


def _chain(file: Path, places: Sequence[Path]) -> list[Document]:
    """Return the documents to merge, furthest ancestor first."""
    documents = [_document(file)]
    while isinstance(parent := documents[-1].values.get("extends"), str):
        child = documents[-1]
        try:
            parent_file = _find(parent, places, after=child.file if child.file.stem == parent else None)
        except UnknownPolicyError as error:
            raise _error(child, ("extends",), str(error)) from None
        if len(documents) > MAX_PARENTS or any(parent_file == document.file for document in documents):
            raise _error(child, ("extends",), f"{parent!r} extends this policy in turn; remove one of the two")
        documents.append(_document(parent_file))
    return documents[::-1]


def _document(file: Path) -> Document:
    """Return a file's document, read again only when it has changed: parsing takes longer than starting a kernel."""
    try:
        info = file.stat()
    except OSError:
        return _read(file, 0, 0, 0)
    return _read(file, info.st_ino, info.st_size, info.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(file: Path, inode: int, size: int, changed: int) -> Document:
    """Read a document and check the file itself, not its values."""
    document, stem = read_document(file), file.stem
    if document.values.setdefault("name", stem) != stem:
        raise _error(document, ("name",), f"must be the file's own name; write {stem!r} or leave it out")
    parent = document.values.get("extends")
    if parent is not None and not (isinstance(parent, str) and POLICY_NAME.fullmatch(parent)):
        raise _error(document, ("extends",), "must be the name of one policy, such as `default`")
    return document


Origin = Callable[[FieldPath], tuple[Document, FieldPath]]
"""Returns in which file, and under which path there, a merged value was written."""


@dataclass(frozen=True)
class _Merged:
    values: YamlMapping
    documents: Sequence[Document]
    """Nearest last, as merged."""

    def origin(self, path: FieldPath) -> tuple[Document, FieldPath]:
        """Return the nearest file that holds ``path``; otherwise the one that holds most of it."""
        nearest_first = self.documents[::-1]
        while path:
            holder = next((document for document in nearest_first if path in document.lines), None)
            if holder is not None:
                return holder, path
            path = path[:-1]
        return nearest_first[0], ()


def _merged(documents: Sequence[Document]) -> _Merged:
    values: YamlMapping = {}
    for document in documents:
        values = _merge(values, document.values, _defaults(Policy), document, ())
        values["extends"] = document.values.get("extends")
    return _Merged(values, documents)


def _merge(
    base: YamlMapping, over: YamlMapping, known: Mapping[str, Any], document: Document, path: FieldPath
) -> YamlMapping:
    """Return ``base`` with the values of ``over``; sections merge, lists may be edited, all else is replaced."""
    result = dict(base)
    for name, value in over.items():
        default, here = known.get(name), (*path, name)
        if isinstance(value, dict) and is_dataclass(default):
            inherited = base.get(name, {})
            if not isinstance(inherited, dict):
                raise _error(document, here, "is no mapping in a policy that this one extends; correct that one")
            result[name] = _merge(inherited, value, _defaults(default), document, here)
        elif isinstance(value, dict) and name in known:
            result[name] = _edited(base.get(name, default), value, document, here)
        else:
            result[name] = value
    return result


def _defaults(schema: Any) -> Mapping[str, Any]:
    """Return the fields of a class of the schema, or of an object of one, each with its default."""
    return {field.name: field.default for field in fields(schema)}


def _edited(inherited: YamlValue, edit: YamlMapping, document: Document, path: FieldPath) -> tuple[YamlValue, ...]:
    """Return the parent's list after ``{add: [...], remove: [...]}``."""
    add, remove = edit.get("add", ()), edit.get("remove", ())
    strange = edit.keys() - {"add", "remove"}
    if strange or not (isinstance(inherited, tuple) and isinstance(add, tuple) and isinstance(remove, tuple)):
        raise _error(document, path, "must be a plain value, or for a list `{add: [...], remove: [...]}`")
    strangers = [item for item in remove if item not in inherited]
    if strangers:
        problem = f"{strangers[0]!r} is not in the list of the parent; leave it out"
        raise _error(document, (*path, "remove"), problem)
    return (*(item for item in inherited if item not in remove), *add)


_PLAINLY = {"tuple_type": "should be a list", "dataclass_type": "should be a mapping of fields"}
"""Plain words for pydantic messages that use Python's type names, which are not YAML's."""


def _validated(values: YamlMapping, origin: Origin) -> Policy:
    try:
        return checked(values)
    except ValidationError as error:
        problems = list(_problems(error, origin))
        file = problems[0][0]
        raise PolicyFileError(file, [problem for place, problem in problems if place == file]) from None


def _problems(error: ValidationError, origin: Origin) -> Iterator[tuple[Path, PolicyProblem]]:
    for detail in error.errors(include_url=False):
        path: FieldPath = detail["loc"]
        document, known = origin(path)
        yield document.file, PolicyProblem(document.line_of(known), dotted(path), _advice(detail, path))


def _advice(detail: ErrorDetails, path: FieldPath) -> str:
    """Return what is wrong with one value and what to write instead."""
    if detail["type"] == "unexpected_keyword_argument":
        return _unknown_field(path)
    message = _PLAINLY.get(detail["type"]) or message_of(detail)
    got = repr(detail["input"])
    shown = got if len(got) <= 60 else f"{got[:57]}..."
    hints = {
        "string_type": "put it in quotes",
        "tuple_type": "write a list, such as [a, b]",
        "int_type": "write a whole number, or for a size text such as `512 MiB`",
        "float_type": "write a number",
        "bool_type": "write true or false",
    }
    hint = hints.get(detail["type"])
    told = f" (found {shown})" if path else ""  # without a path it is the whole file
    return f"{message[:1].lower()}{message[1:]}{told}" + (f"; {hint}" if hint else "")


def _unknown_field(path: FieldPath) -> str:
    schema: Any = Policy
    for part in path[:-1]:
        schema = _defaults(schema)[str(part)]
    names = list(_defaults(schema))
    near = difflib.get_close_matches(str(path[-1]), names, n=1)
    known = ", ".join(names)
    hint = f"did you mean {near[0]!r}?" if near else f"the fields here are: {known}"
    return f"there is no such field; {hint}"


def _error(document: Document, path: FieldPath, message: str) -> PolicyFileError:
    return PolicyFileError(document.file, [PolicyProblem(document.line_of(path), dotted(path), message)])
