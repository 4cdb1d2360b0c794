"""What a session can name: the callables and classes of its modules, and those of the objects that it can make."""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
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
            found[expression] = Target(expression, expression, value, "function", trusted=_is_python(value))
    for piece in pool.samples:
        expression = f"type({piece.expression})"
        made = session.make(expression)  # not always the class that it really is
        if made is not None and id(made.value) not in seen and not adapter.is_session_class(made.value):
            seen.add(id(made.value))
            classes.append((expression, made.value))
    for expression, cls in classes:
        python = not _is_c(cls)
        found[expression] = Target(expression, expression, cls, "class", trusted=python)
        if cls not in (bool, type(None)):
            found[f"{expression}:base"] = Target(f"{expression}:base", expression, cls, "base", trusted=python)
        for target in _methods(session, expression, cls, seen):
            found.setdefault(target.key, target)
    return [found[key] for key in sorted(found)]


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
            yield Target(key, key, value, "method", cls, trusted=_is_python(raw))


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


def _is_c(cls: type) -> bool:
    return not any(isinstance(value, types.FunctionType) for value in adapter.dict_of(cls).values())


def names_read_by(target: Target) -> list[str]:
    """The attributes that the code of a target reads, as far as it is Python."""
    value = target.value
    if isinstance(value, type):
        value = adapter.dict_of(value).get("__init__")
    code = getattr(getattr(value, "__func__", value), "__code__", None)
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
