"""Who waits until there is something in a tree of goals that was not there: a queue, or a lock."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress


class Beginnings:
    """Calls those who wait, once."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[Callable[[], None]]] = {}

    def when(self, tree: str, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` when it begins in a tree; returns what ends the waiting."""
        self._awaited.setdefault(tree, []).append(told)

        def leave() -> None:
            with suppress(KeyError, ValueError):
                self._awaited[tree].remove(told)

        return leave

    def begun(self, tree: str) -> None:
        """Say that it is there; whoever waits is called the first time."""
        for told in self._awaited.pop(tree, []):
            told()
