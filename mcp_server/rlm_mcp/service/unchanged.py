"""Rows that many calls read: as they were read last, until a transaction may have changed them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from rlm_memory.store import Store

Given = TypeVarTuple("Given")
T = TypeVar("T")


class Unchanged:
    """What functions of the rows return. Any transaction, whatever it changes, makes all of them be read again.

    Not for use inside a transaction, which would see less than it has written itself.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes = 0
        self._found: dict[tuple[object, ...], tuple[int, Any]] = {}
        store.watch(self._changed)

    def read(self, rows: Callable[[Store, *Given], T], *given: *Given) -> T:
        """Return what ``rows`` returns for the store and these values; the caller must not change it."""
        key = (rows, *given)
        known = self._found.get(key)
        if known is not None and known[0] == self._changes:
            found: T = known[1]
            return found
        changes = self._changes  # before the reading, which a transaction of another thread may overtake
        found = rows(self._store, *given)
        self._found[key] = changes, found
        return found

    def _changed(self) -> None:
        self._changes += 1
        self._found.clear()
