"""Notifies waiters when a tree of goals gets its first queue or lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress


class Beginnings:
    """Calls the waiters of a tree, once."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[Callable[[], None]]] = {}

    def when(self, tree: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` when it begins in a tree. Return a function that ends the waiting."""
        self._awaited.setdefault(tree, []).append(told)

        def leave() -> None:
            with suppress(KeyError, ValueError):
                self._awaited[tree].remove(told)

        return leave

    def begun(self, tree: str) -> None:
        """Note that it exists now; the first time, call the waiters."""
        for told in self._awaited.pop(tree, []):
            told()
