"""The queries of one session that wait for a provider: some of each kind are under way, the others stand in line.

A task for each of a thousand queries would be made before the first request leaves; so the first ones begin while the
others join, and one session's thousand do not stand before another's one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlm_memory.queries import QueryRow

__all__ = ["Line"]

_Kind = tuple[str | None, bool]


@dataclass(eq=False, slots=True)
class _Place:
    row: QueryRow
    task: asyncio.Task[None] | None = None


class Line:
    """Queries in the order in which they joined; ``work`` answers one and raises nothing.

    ``empty`` is set while nothing is under way and nothing waits.
    """

    def __init__(self, work: Callable[[QueryRow], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._places: dict[str, _Place] = {}
        self._waiting: defaultdict[_Kind, deque[_Place]] = defaultdict(deque)
        self._tasks: defaultdict[_Kind, set[asyncio.Task[None]]] = defaultdict(set)
        self.empty = asyncio.Event()
        self.empty.set()

    def join(self, row: QueryRow, at_once: int) -> None:
        """Let the query wait for its turn: of its kind (its model, and whether it is recursive) ``at_once`` have it."""
        if row.id in self._places:
            return
        place = self._places[row.id] = _Place(row)
        self.empty.clear()
        kind = row.model, row.recursive
        self._waiting[kind].append(place)
        if len(self._tasks[kind]) < at_once:
            self._next(kind)

    def leave(self, ids: Iterable[str]) -> list[str]:
        """Stop working on these queries; returns those that were not done."""
        open_ = [name for name in ids if name in self._places]
        for name in open_:
            place = self._places.pop(name)
            if place.task is not None:
                place.task.cancel()
        self._look()
        return open_

    def close(self) -> list[asyncio.Task[None]]:
        """Stop working on all; returns the tasks, which end soon."""
        self.leave(list(self._places))
        return [task for tasks in self._tasks.values() for task in tasks]

    def _next(self, kind: _Kind) -> None:
        """Begin with the next query of the kind, if one waits."""
        waiting = self._waiting[kind]
        while waiting:
            place = waiting.popleft()
            if self._is_open(place):
                place.task = asyncio.create_task(self._attend(place), name=f"query {place.row.id}")
                self._tasks[kind].add(place.task)
                place.task.add_done_callback(partial(self._done, kind))
                return

    async def _attend(self, place: _Place) -> None:
        try:
            await self._work(place.row)
        finally:
            if self._is_open(place):
                del self._places[place.row.id]
                self._look()

    def _done(self, kind: _Kind, task: asyncio.Task[None]) -> None:
        self._tasks[kind].discard(task)
        self._next(kind)

    def _is_open(self, place: _Place) -> bool:
        return self._places.get(place.row.id) is place

    def _look(self) -> None:
        if not self._places:
            self.empty.set()
