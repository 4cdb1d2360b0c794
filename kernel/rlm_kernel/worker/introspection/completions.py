"""What Tab offers at a cursor, each match with its type and its signature."""

from __future__ import annotations

import itertools
import keyword
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel.worker.introspection import expressions, known, tables
from rlm_kernel.worker.introspection.cursor import Call, Cursor, locate
from rlm_kernel.worker.introspection.known import Known
from rlm_kernel.worker.introspection.signatures import is_callable, parameters, signature
from rlm_kernel.worker.introspection.static import (
    MISSING,
    entries,
    instance_names,
    is_class,
    is_module,
    module_names,
)
from rlm_kernel.worker.introspection.surroundings import SessionSurroundings
from rlm_kernel.worker.kinds import one_of
from rlm_kernel.worker.traceback import name_of
from rlm_sandbox.language_wall.names import AttributeAccess, access
from rlm_sandbox.language_wall.registry import may_touch_private

MOST: Final = 1_000
"""Matches in a reply. A front end filters these as the user types on, and does not ask again."""
MOST_GLOBALS: Final = 2_000
_MODULE_PATH: Final = re.compile(r"^\s*(?:import|from)\s+(?:.*,\s*)?([\w.]*)$")
_FROM_NAMES: Final = re.compile(r"^\s*from\s+([\w.]+)\s+import\s+[(]?(?:[\w\s,]*,\s*|\s*)(\w*)$", re.DOTALL)
_RESULT_NAMES: Final = re.compile(r"_+(?:i*|i?\d+|oh|dh|ih|exit_code)")
_MAGIC: Final = re.compile(r"^\s*(%{1,2}\w*)$")


@dataclass(frozen=True, slots=True)
class Match:
    """Something to type at the cursor: its text, its type, and the signature if it can be called."""

    text: str
    type: str
    signature: str = ""


def complete(around: SessionSurroundings, code: str, position: int) -> tuple[int, list[Match]]:
    """Return where the completed text begins, and the matches."""
    cursor = locate(code, position)
    if cursor.comment:
        return position, []
    around.scope.written = expressions.written(code, position)
    start, found = _found(around, cursor)
    unique: dict[str, Match] = {}
    for match in found:
        if match.text:
            unique.setdefault(match.text, match)
    return start, sorted(unique.values(), key=lambda match: (match.text.startswith("_"), match.type != "param"))[:MOST]


def _found(around: SessionSurroundings, cursor: Cursor) -> tuple[int, list[Match]]:
    if cursor.quote:
        return _in_text(around, cursor)
    if (magic := _MAGIC.match(cursor.line)) is not None:
        return cursor.start - (len(magic[1]) - len(cursor.word)), _magics(around, magic[1])
    if (names := _FROM_NAMES.match(cursor.line)) is not None:
        return cursor.start, [match for match in _of_module(around, names[1]) if match.text.startswith(names[2])]
    if (path := _MODULE_PATH.match(cursor.line)) is not None:
        return cursor.start, _modules(around, path[1])
    if cursor.owner is not None:
        owner = around.scope.text(cursor.owner) if cursor.owner else None
        return cursor.start, [] if owner is None else list(attributes(owner, cursor.word))
    subscripted = _subscripted(cursor)
    if subscripted is not None and not cursor.word:
        return cursor.start, _keys(around, subscripted, cursor)
    return cursor.start, [*_arguments(around, cursor), *_names(around, cursor.word)]


# -- names and attributes


def _names(around: SessionSurroundings, word: str) -> list[Match]:
    scope, found = around.scope, []
    for name in scope.written:
        if name.startswith(word) and not name.startswith("__"):
            what = scope.name(name)
            found.append(Match(name, "instance") if what is None else _match(name, what))
    globals_ = (*entries(scope.namespace), *entries(scope.builtins))
    wanted = (
        (name, value)
        for name, value in globals_
        if name.startswith(word) and name not in scope.hidden and _is_for_people(name, word)
    )
    found += [_match(name, known.known(value)) for name, value in itertools.islice(wanted, MOST_GLOBALS)]
    found += [Match(name, "keyword") for name in keyword.kwlist if word and name.startswith(word)]
    return found


def _is_for_people(name: str, word: str) -> bool:
    """Whether a global is one that a person may mean: not ours, nor IPython's for the results of cells."""
    if not name.isidentifier() or name.startswith("__"):
        return False
    return not name.startswith("_") or bool(word and not _RESULT_NAMES.fullmatch(name))


def attributes(owner: Known, word: str = "") -> Iterator[Match]:
    """Yield the attributes that begin with a word, as far as code may read them."""
    seen: set[str] = set()
    for name in _attribute_names(owner):
        if name.startswith(word) and name not in seen and name.isidentifier() and _may_show(owner, name, word):
            seen.add(name)
            found = known.attribute(owner, name)
            yield Match(name, "property") if found is None else _match(name, found)


def _attribute_names(owner: Known) -> list[str]:
    value = owner.value
    if is_module(value):
        return sorted(name for name, _ in entries(module_names(value)))
    if is_class(value):
        return sorted(name for name, _ in known.owner_names(value))
    own = [name for name, _ in entries(instance_names(value))]
    inherited = [name for name, _ in known.owner_names(owner.kind)]
    return [
        *tables.columns(value),
        *sorted((*own, *inherited, *(known.fields(owner.kind) if value is MISSING else ()))),
    ]


def _may_show(owner: Known, name: str, word: str) -> bool:
    """Return whether the policy lets code read the attribute, and the person has started to type names of its kind."""
    if not name.startswith("_"):
        return True
    if not word.startswith("_"):
        return False
    how = access(name)
    if how is AttributeAccess.PRIVATE:
        cls = owner.value if is_class(owner.value) else owner.kind
        return may_touch_private(cls, name)
    return how is AttributeAccess.NATIVE


def _match(name: str, found: Known) -> Match:
    value = found.value
    if is_module(value):
        return Match(name, "module")
    if is_class(value):
        return Match(name, "class", signature(found))
    if one_of(found.kind, _FUNCTION_KINDS) or (value is not MISSING and name_of(found.kind) in _FUNCTION_NAMES):
        return Match(name, "function", signature(found))
    return Match(name, "instance")


_FUNCTION_KINDS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodDescriptorType)
_FUNCTION_NAMES: Final = ("ufunc", "_ArrayFunctionDispatcher", "cython_function_or_method", "partial")


# -- keys, arguments and files


def _subscripted(cursor: Cursor) -> str | None:
    """Return the expression whose key the cursor is in, also within a list of keys; None if it is in no subscript."""
    for call in reversed(cursor.calls):
        if call.bracket == "[" and call.of:
            return call.of
        if call.bracket != "[":
            return None
    return None


def _keys(around: SessionSurroundings, expression: str, cursor: Cursor) -> list[Match]:
    """Return the keys that begin with what is typed: within a quote the rest of each, otherwise as they are written."""
    found = around.scope.text(_INDEXERS.sub("", expression))
    if found is None:
        return []
    if cursor.quote:
        texts = (key for key in known.keys(found) if type(key) is str)
        return [Match(_within(key, cursor.quote), "dict key") for key in texts if key.startswith(cursor.word)]
    return [Match(repr(key), "dict key") for key in known.keys(found) if type(key) is not float]


_INDEXERS: Final = re.compile(r"\.(?:loc|at)$")


def _within(key: str, quote: str) -> str:
    """Return a key as it is written between quotes."""
    if "r" in quote.lower():
        return key
    text = key.encode("unicode_escape").decode("ascii") if not key.isprintable() else key.replace("\\", "\\\\")
    return text.replace(quote[-1], f"\\{quote[-1]}")


def _arguments(around: SessionSurroundings, cursor: Cursor) -> list[Match]:
    call = _innermost_call(cursor)
    if call is None or not cursor.argument:
        return []
    found = around.scope.text(call.of)
    if found is None or not is_callable(found):
        return []
    names = [name for name in parameters(found) if name not in call.names and not name.startswith("_")]
    return [Match(f"{name}=", "param") for name in names if name.startswith(cursor.word)]


def _innermost_call(cursor: Cursor) -> Call | None:
    call = cursor.calls[-1] if cursor.calls else None
    return call if call is not None and call.bracket == "(" and call.of else None


def _in_text(around: SessionSurroundings, cursor: Cursor) -> tuple[int, list[Match]]:
    expression = _subscripted(cursor)
    if expression is not None and cursor.argument:
        return cursor.start, _keys(around, expression, cursor)
    held = _columns_for(around, cursor)
    head, slash, word = cursor.word.rpartition("/")
    files = [
        Match(f"{_within(name, cursor.quote)}{'/' if folder else ''}", "path")
        for name, folder in around.list_folder(f"{head}{slash}" or ".")
        if name.startswith(word) and (word.startswith(".") or not name.startswith("."))
    ]
    if held and not slash:
        return cursor.start, held + files
    return cursor.start + len(head) + len(slash), files


def _columns_for(around: SessionSurroundings, cursor: Cursor) -> list[Match]:
    """Return the columns of a table, in a call of one of its methods: ``df.groupby('``."""
    call = next((call for call in reversed(cursor.calls) if call.bracket == "(" and call.of), None)
    if call is None or "." not in call.of:
        return []
    found = around.scope.text(call.of.rpartition(".")[0])
    names = [] if found is None else tables.columns(found.value)
    return [Match(_within(name, cursor.quote), "column") for name in names if name.startswith(cursor.word)]


# -- modules and magics


def _modules(around: SessionSurroundings, path: str) -> list[Match]:
    package, _, word = path.rpartition(".")
    return [Match(name, "module") for name in around.modules(package) if name.startswith(word)]


def _of_module(around: SessionSurroundings, path: str) -> list[Match]:
    module = around.scope.module(path)
    own = [] if module is None else list(attributes(known.known(module), ""))
    return [*own, *(Match(name, "module") for name in around.modules(path))]


def _magics(around: SessionSurroundings, word: str) -> list[Match]:
    return [Match(name, "magic") for name in around.magics if name.startswith(word)]


def experimental(matches: Iterable[Match], start: int, end: int) -> list[Mapping[str, str | int]]:
    """Return the matches in the form in which JupyterLab reads types and signatures."""
    return [
        {"start": start, "end": end, "text": match.text, "type": match.type, "signature": match.signature}
        for match in matches
    ]
