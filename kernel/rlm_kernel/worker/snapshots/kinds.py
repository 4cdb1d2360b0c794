"""The closed list of library objects that a snapshot keeps: how each is taken apart, recreated and filled.

``make`` and ``fill`` run in the session that restores, on untrusted input. Each checks the types of its arguments, and
creates its object by a public constructor that a cell could call with the same arguments. None sets a private attribute
of a library's object, and no method of a library that pickle would call (`__reduce__`, `__setstate__`) runs.
"""

from __future__ import annotations

import enum
import sys
import types
from collections.abc import Callable
from typing import Any, Final

from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel.worker.snapshots.common import Making, Unkept

Split = Callable[[Any], tuple[tuple[Any, ...], Any]]
"""The arguments that create the object, and the state that fills it, or None."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How objects of some classes are kept; ``note`` says what of an object is not kept.

    ``module`` is where code imports the classes from: a session that may not import it does not get the objects.
    """

    name: str
    split: Split
    make: Callable[..., Any]
    fill: Callable[[Making, Any, Any], None] | None = None
    note: Callable[[Any], str] | None = None
    module: str = ""


TABLE: Final[dict[str, Kind]] = {}
TYPES: Final[dict[type, Kind]] = {}
BASES: Final[dict[type, Kind]] = {}
"""Kinds of classes that a class of the session may derive from."""
SINGLE_TYPES: Final = {type(None): "None", type(Ellipsis): "Ellipsis", type(NotImplemented): "NotImplemented"}
"""Classes with a single object that no module provides."""
_LOADERS: Final[dict[str, Callable[[], None]]] = {}
_OF_PACKAGE: Final[dict[str, str]] = {}
_HOMES: Final = {
    "builtins": "",
    "types": "",
    "_io": "io",
    "_thread": "threading",
    "_contextvars": "contextvars",
    "_queue": "queue",
    "pathlib._local": "pathlib",
    "_pydatetime": "datetime",
}
"""The modules that some classes name as their own, and where code imports them from; empty if no import is needed."""
_loaded: Final[set[str]] = set()


def add(
    name: str,
    classes: tuple[type, ...],
    split: Callable[[Any], Any],
    make: Callable[..., Any],
    fill: Callable[[Making, Any, Any], None] | None = None,
    note: Callable[[Any], str] | None = None,
) -> None:
    """Add a kind: ``split`` returns arguments, with ``fill`` also a state; ``make`` gets the restorer and these."""
    homes = {str(cls.__module__) for cls in classes}
    module = "" if len(homes) != 1 else _HOMES.get(home := homes.pop(), home)
    whole: Split = split if fill is not None else lambda value: (split(value), None)
    TABLE[name] = kind = Kind(name, whole, make, fill, note, module)
    TYPES.update(dict.fromkeys(classes, kind))


def add_package(package: str, names: tuple[str, ...], load: Callable[[], None]) -> None:
    """Add the kinds of a package, which ``load`` defines when its first object turns up."""
    _LOADERS[package] = load
    _OF_PACKAGE.update(dict.fromkeys(names, package))


def load_package(package: str) -> None:
    """Define the kinds of a package that has been imported."""
    if package in _LOADERS and package not in _loaded and package in sys.modules:
        _loaded.add(package)
        _LOADERS[package]()


def of(value: Any, cls: type) -> Kind | None:
    """Return the kind of an object."""
    if (kind := TYPES.get(cls)) is not None:
        return kind
    if issubclass(cls, BaseException):
        return TABLE["exception"] if cls.__module__ == "builtins" else None
    if is_enum(cls):
        return TABLE["member"]
    package = str(cls.__module__).partition(".")[0]
    load_package(package)
    if package == "numpy":
        numpy = sys.modules["numpy"]
        for base, name in ((numpy.generic, "np scalar"), (numpy.dtype, "np dtype")):
            if issubclass(cls, base):
                return TABLE[name]
    return TYPES.get(cls)


def of_function(function: types.FunctionType, given: Callable[[str, str], Any]) -> Kind | None:
    """Return the kind of a function that a library has made around one of the session's.

    ``given`` returns what a module has under a name. Its code is recognized by the maker's: what it says of itself
    decides nothing.
    """
    for module, name in AROUND:
        try:
            maker = given(module, name)
        except Unkept:
            continue
        if type(maker) is types.FunctionType and function.__code__ in maker.__code__.co_consts:
            return TABLE[name]
    return None


def by_name(name: str, import_module: Callable[[str], Any]) -> Kind:
    """Return the kind with that name; the session that restores imports its package, and may refuse it."""
    if (package := _OF_PACKAGE.get(name)) is not None:
        import_module(package)
        load_package(package)
    if name not in TABLE:
        raise Unkept(f"there is no kind {name[:40]!r}")
    if (module := TABLE[name].module) and package is None:
        import_module(module)
    return TABLE[name]


def is_enum(cls: type) -> bool:
    """Return whether it is an enumeration."""
    return issubclass(cls, enum.Enum)


def links_of(error: BaseException) -> list[Any] | None:
    """Return cause, context, and whether the context is hidden; None if there is nothing to record."""
    of_error = BaseException.__dict__
    cause, context, hidden = (
        of_error[name].__get__(error) for name in ("__cause__", "__context__", "__suppress_context__")
    )
    return None if cause is None and context is None and not hidden else [cause, context, hidden]


AROUND: Final = (
    ("functools", "singledispatch"),
    ("contextlib", "contextmanager"),
    ("contextlib", "asynccontextmanager"),
)
"""Decorators of the standard library that make a function, by module and name. The name is also that of their kind."""
