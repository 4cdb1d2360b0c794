"""The contents of functions, closures and objects of a session's classes, as a snapshot keeps them."""

from __future__ import annotations

import types
from typing import Any

from rlm_kernel.worker.snapshots import kinds
from rlm_kernel.worker.snapshots.common import Names, Shape


def content_of_function(function: types.FunctionType) -> tuple[Any, ...]:
    """Return its defaults, attributes and annotations."""
    return (
        function.__defaults__,
        function.__kwdefaults__,
        dict(function.__dict__),
        dict(function.__annotations__),
    )


def content_of_cell(cell: types.CellType) -> tuple[Any, ...]:
    """Return its value; empty if it has none."""
    try:
        return (cell.cell_contents,)
    except ValueError:  # a variable that has no value yet
        return ()


def value_of(base: type, value: Any) -> Any:
    """Return the value itself, without the class of the session."""
    if base is tuple:
        return tuple.__getitem__(value, slice(None))
    if base is frozenset:
        return frozenset(frozenset.__iter__(value))
    if base is complex:
        return complex.__pos__(value)
    return base.__getnewargs__(value)[0]  # type: ignore[attr-defined]


def state_of(value: Any, shape: Shape) -> tuple[Names | bool, Names, Any] | None:
    """Return the attributes, slots and items of an object; None if it has none of them.

    True stands for the attributes of a dict that are its own items, because its code assigned it to its `__dict__`.
    """
    names: Names | bool = {}
    try:
        own = object.__getattribute__(value, "__dict__")
        names = own is value or dict(dict.items(own))  # a class may define differently what is in a dict of its own
    except AttributeError:
        pass  # it has slots only
    slots: Names = {}
    for name, slot in shape.slots.items():
        try:
            slots[name] = slot.__get__(value, shape.cls)
        except AttributeError:
            continue  # it has no value
    items = _items_of(value, shape.base)
    return (names, slots, items) if names or slots or items else None


def _items_of(value: Any, base: type) -> Any:
    if base is dict:
        return list(dict.items(value))
    if base is list:
        return list.__getitem__(value, slice(None))
    if base is set:
        return list(set.__iter__(value))
    if base is bytearray:
        return bytes(value)
    if issubclass(base, BaseException):
        return kinds.links_of(value)
    return None
