"""What a session can name: the callables and classes of its modules, and those of the objects that it can make."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import crawl_adapter as adapter
from crawl_session import LENT, CrawlSession, Pool


@dataclass(frozen=True)
class Target:
    """Something to call, to derive from, or both."""

    key: str
    expression: str
    value: Any
    kind: str
    """``function``, ``class`` (to call), ``base`` (to derive from) or ``method``."""
    owner: Any = None
    """The class of a method."""
    trusted: bool = False
    """Whether it is Python code, of ours or of a library, and not C code alone."""
    watched: bool = False
    """Whether the wall has a hand in it: it has code of ours, or raises an event for the audit hook itself."""
    words: tuple[str, ...] = ()
    """The names of modules and classes that the wall holds where that code is."""


def surface(session: CrawlSession, pool: Pool) -> list[Target]:
    """Everything that can be called by name, once each."""
    found: dict[str, Target] = {}
    seen: set[int] = set()
    classes: list[tuple[str, type]] = []
    for expression, value in _named(session):
        if id(value) in seen:
            continue
        seen.add(id(value))
        if issubclass(type(value), type):
            classes.append((expression, value))
        elif callable(value):
            found[expression] = Target(
                expression, expression, value, "function", None, _is_python(value), _is_watched(value)
            )
    for piece in pool.samples:
        expression = f"type({piece.expression})"
        made = session.make(expression)  # not always the class that it really is
        if made is not None and id(made.value) not in seen and not adapter.is_session_class(made.value):
            seen.add(id(made.value))
            classes.append((expression, made.value))
    for expression, cls in classes:
        python, watched = not _is_c(cls), any(map(_is_watched, adapter.dict_of(cls).values()))
        found[expression] = Target(expression, expression, cls, "class", None, python, watched)
        if cls not in (bool, type(None)):
            found[f"{expression}:base"] = Target(
                f"{expression}:base", expression, cls, "base", None, python, watched or bool(asked_of_itself(cls))
            )
        for target in _methods(session, expression, cls, seen):
            found.setdefault(target.key, target)
    owners = frozenset(adapter.owners_of_the_wall())
    return [_with_words(found[key], owners) for key in sorted(found)]


def _with_words(target: Target, owners: frozenset[str]) -> Target:
    if not target.watched or target.kind == "base":
        return target
    value = target.value
    beside = adapter.words_beside(adapter.dict_of(value).values() if isinstance(value, type) else [value])
    return replace(target, words=tuple(sorted(beside & owners)))


def _named(session: CrawlSession) -> Iterator[tuple[str, Any]]:
    left_out = {"note", *LENT, *session.wall.policy.language.blocked_names}
    for name, value in session.wall.builtins.items():
        if not name.startswith("_") and name not in left_out:
            yield name, value
    known = set(session.imported)
    for name, copy in sorted(adapter.copies(session.wall.policy).items()):
        top = name.partition(".")[0]
        if not (name in known or top in known or any(name.startswith(f"{one}.") for one in known)):
            continue
        if name not in known and not session.try_cell(f"import {name}"):
            continue
        for key, value in sorted(vars(copy).items()):
            if not key.startswith("_") and key.isidentifier() and session.reader(key) is not None:
                yield f"{name}.{key}", value


def _methods(session: CrawlSession, expression: str, cls: type, seen: set[int]) -> Iterator[Target]:
    for name in sorted(names_of_class(cls)):
        raw = next(adapter.dict_of(base)[name] for base in adapter.mro_of(cls) if name in adapter.dict_of(base))
        if id(raw) in seen:
            continue
        reader = session.reader(name)
        if reader is None or (name.startswith("_") and adapter.is_private(name)):
            continue
        seen.add(id(raw))
        try:
            value = session.run(reader, cls)
        except BaseException:
            continue
        if callable(value) and not issubclass(type(value), type):
            key = f"{expression}.{name}"
            yield Target(key, key, value, "method", cls, _is_python(raw), _is_watched(raw))


def names_of_class(cls: type) -> set[str]:
    """The names in the namespaces of a class and of its bases."""
    return {name for base in adapter.mro_of(cls) for name in adapter.dict_of(base) if type(name) is str}


def names_of(value: Any) -> set[str]:
    """The names that an object may have: those of its class, and those in its own namespace."""
    kind = type(value)
    found = names_of_class(kind)
    if issubclass(kind, type):
        return found | names_of_class(value)
    try:
        found |= {name for name in object.__getattribute__(value, "__dict__") if type(name) is str}
    except Exception:
        return found
    return found


def _is_python(value: Any) -> bool:
    inner = getattr(value, "__func__", value)
    return isinstance(inner, types.FunctionType | classmethod | staticmethod | property)


def asked_of_itself(cls: type) -> list[str]:
    """The attributes of an object that a library's ``__getattr__`` reads: it may pass on what they have."""
    namespaces = map(adapter.dict_of, adapter.mro_of(cls))
    found = next((names["__getattr__"] for names in namespaces if "__getattr__" in names), None)
    code = adapter.code_of(found)
    return [] if code is None else [name for name in code.co_names if name.isidentifier() and not name.startswith("_")]


def _is_watched(value: Any) -> bool:
    code = adapter.code_of(value)
    return code is not None and (adapter.is_of_the_wall(code) or "audit" in code.co_names)


def _is_c(cls: type) -> bool:
    return not any(isinstance(value, types.FunctionType) for value in adapter.dict_of(cls).values())


def names_read_by(target: Target) -> list[str]:
    """The attributes that the code of a target reads, as far as it is Python."""
    value = target.value
    if isinstance(value, type):
        value = adapter.dict_of(value).get("__init__")
    code = adapter.code_of(value)
    return [name for name in code.co_names if not name.startswith("__")] if code is not None else []


def arity(value: Any) -> tuple[int, int, tuple[str, ...]]:
    """The fewest and most positional arguments of a callable, and the names of its keyword arguments."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except Exception:
        return 0, 3, ()
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    few = sum(p.default is p.empty for p in places)
    most = len(places) + 2 * any(p.kind is p.VAR_POSITIONAL for p in parameters)
    keywords = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
    return few, most, keywords
