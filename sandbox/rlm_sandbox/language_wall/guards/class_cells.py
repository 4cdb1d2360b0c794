"""The cells of a class, while a metaclass of the session creates it.

A class body leaves two cells in its namespace. Through one, methods find their class; through the other, since Python
3.12, an alias or a method's type parameters find the live namespace of the class. A metaclass could swap them. So it
sees an object without attributes for each, which becomes the cell again when ``type`` creates the class.
"""

from __future__ import annotations

import types
from typing import Any, Final

_CELLS: Final = ("__classcell__", "__classdictcell__")
_sealed: Final[dict[int, tuple[object, str, types.CellType]]] = {}
"""The stand-in for a cell, its name, and the cell; by the id of the stand-in."""


def call_sealed(
    meta: Any, name: str, bases: tuple[Any, ...], namespace: dict[Any, Any], keywords: dict[str, object]
) -> Any:
    """Call a metaclass of the session, or what stands for one, with a namespace without cells.

    Raises:
        RuntimeError: It made a class without the cell by which methods find it, as CPython says.
    """
    seals = []
    for key in _CELLS:
        if key in namespace:
            seals.append(object())
            _sealed[id(seals[-1])] = seals[-1], key, namespace[key]
            namespace[key] = seals[-1]
    try:
        made = meta(name, bases, namespace, **keywords)
        _check_propagated(seals, name, made)
    finally:
        for each in seals:
            del _sealed[id(each)]
    return made


def unseal(namespace: dict[Any, Any]) -> None:
    """Put the cells back into the namespace from which ``type`` creates a class."""
    for key in _CELLS:
        found = _sealed.get(id(namespace.get(key)))
        if found is not None and found[1] == key:
            namespace[key] = found[2]


def _check_propagated(seals: list[object], name: str, made: Any) -> None:
    for each in seals:
        _, key, cell = _sealed[id(each)]
        if key == "__classcell__" and issubclass(type(made), type):
            try:
                _ = cell.cell_contents
            except ValueError:
                way = "pass the namespace, or a copy with '__classcell__', to `super().__new__`"
                raise RuntimeError(f"__class__ is not set in class '{name}': {way}") from None
