"""The queries of one session that wait for a provider: a bounded pool of workers for each kind.

Workers take one query after the other: a task for each of a thousand queries would delay the first request, and one
session's thousand queries must not delay another session's single one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any

from rlm_memory.queries import QueryRow

_Kind = tuple[str | None, bool]


class ProviderQueue:
    """Queries in order of arrival; ``work`` answers one and raises nothing.

    ``empty`` is set while no query is waiting or in progress.
    """

    def __init__(self, work: Callable[[QueryRow], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._open: dict[str, asyncio.Task[None] | None] = {}  # ids, each with the worker that has it if one has
        self._waiting: defaultdict[_Kind, deque[QueryRow]] = defaultdict(deque)
        self._workers: defaultdict[_Kind, set[asyncio.Task[None]]] = defaultdict(set)
        self.empty = asyncio.Event()
        self.empty.set()

    def join(self, row: QueryRow, at_once: int) -> None:
        """Queue a query. Of its kind (model, and whether it is recursive), ``at_once`` are answered in parallel."""
        if row.id in self._open:
            return
        self._open[row.id] = None
        self.empty.clear()
        kind = row.model, row.recursive
        self._waiting[kind].append(row)
        if len(self._workers[kind]) < at_once:
            self._hire(kind)

    def leave(self, ids: Iterable[str]) -> list[str]:
        """Stop working on these queries. Return those that were not answered."""
        left = [name for name in ids if name in self._open]
        for name in left:
            worker = self._close(name)
            if worker is not None:
                worker.cancel()  # another worker takes its place
        return left

    def close(self) -> list[asyncio.Task[None]]:
        """Stop working on all; returns the tasks, which end soon."""
        self.leave(list(self._open))
        return [worker for workers in self._workers.values() for worker in workers]

    def _hire(self, kind: _Kind) -> None:
        worker = asyncio.create_task(self._serve(kind), name=f"queries to {kind[0]}")
        self._workers[kind].add(worker)
        worker.add_done_callback(partial(self._ended, kind))

    def _ended(self, kind: _Kind, worker: asyncio.Task[None]) -> None:
        self._workers[kind].discard(worker)
        if self._waiting[kind]:
            self._hire(kind)

    async def _serve(self, kind: _Kind) -> None:
        worker, waiting = asyncio.current_task(), self._waiting[kind]
        while waiting:
            row = waiting.popleft()
            # One that has left is not there; one that joined anew since then may be, twice, and is served once.
            if self._open.get(row.id, worker) is not None:
                continue
            self._open[row.id] = worker
            try:
                await self._work(row)
            finally:
                if self._open.get(row.id) is worker:
                    self._close(row.id)

    def _close(self, name: str) -> asyncio.Task[None] | None:
        worker = self._open.pop(name)
        if not self._open:
            self.empty.set()
        return worker
