"""Import a library without the modules that it imports and this process does not use. Standard library only.

Everything here is only for the main program of a process.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def hollow(*packages: str) -> None:
    """Make modules of ``packages`` importable from now on without running the packages' ``__init__``.

    The names that the ``__init__`` defines are missing then. Packages that are already imported do not change.
    """
    for name in packages:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            sys.modules[name] = importlib.util.module_from_spec(spec)


@contextmanager
def stubs(names: Iterable[str]) -> Iterator[dict[str, ModuleType]]:
    """Stand stub modules in for those that are not imported yet. Yield them by their names; they go at the end."""
    absent: dict[str, ModuleType] = {name: _StandIn(name) for name in names if name not in sys.modules}
    for name, module in absent.items():
        package, _, leaf = name.rpartition(".")
        if package in absent:
            setattr(absent[package], leaf, module)
    sys.modules.update(absent)
    try:
        yield absent
    finally:
        for name in absent:
            del sys.modules[name]


class _StandIn(ModuleType):
    """A stub module from which any name can be imported; each is a class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (_Absent,), {}))
        return getattr(self, name)


class _Absent:
    """What a stub module holds: in annotations a class, and false as the answer of a function."""

    def __class_getitem__(cls, _: object) -> type:
        return cls

    def __bool__(self) -> bool:
        return False
