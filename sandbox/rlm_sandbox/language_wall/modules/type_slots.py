"""C classes made to ask Python first: their constructors trust more than hostile code may claim.

Such a class takes no assignments, so the change is made in its memory: the slot that C code calls gets the function
that looks up the method of that name in the class's namespace, where the new one is placed.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from typing import Any, Final

from rlm_sandbox.language_wall.registry import dict_of

_OFFSETS: Final = {"__new__": 312, "__init__": 296}
"""Offsets of ``tp_new`` and ``tp_init`` in a type object, on every supported 64-bit CPython."""


class _Ordinary:
    def __init__(self) -> None:
        pass

    def __new__(cls) -> Any:
        return object.__new__(cls)


def replace_slot(cls: type, name: str, method: Any) -> None:
    """Make ``cls``, and the classes that inherit it from there, call ``method`` for ``name``."""
    old, by_name = slot(cls, name).value, slot(_Ordinary, name).value
    namespace_of(cls)[name] = method
    for heir in (cls, *heirs(cls)):
        if slot(heir, name).value == old:
            slot(heir, name).value = by_name
            modified(heir)


def original_new(cls: type) -> Callable[[type, tuple[Any, ...], None], Any]:
    """Return what ``cls.__new__`` does in C, whatever replaces it later."""
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)
    return prototype(slot(cls, "__new__").value)


def slot(cls: type, name: str) -> ctypes.c_uint64:
    """Return the slot itself."""
    return ctypes.c_uint64.from_address(id(cls) + _OFFSETS[name])


def namespace_of(cls: type) -> Any:
    """Return the live namespace of a class."""
    return gc.get_referents(dict_of(cls))[0]


def modified(cls: type) -> None:
    """Tell CPython that a class has changed."""
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


def heirs(cls: type) -> Iterator[type]:
    """Yield every class that derives from a class, whatever its metaclass says."""
    below: list[type] = type.__subclasses__(cls)
    for heir in below:
        yield heir
        yield from heirs(heir)
