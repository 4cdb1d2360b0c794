"""The queue of one session: requests of its clients, and the supervisor's own work.

The `driver` takes one after the other; everything else only adds to the queue.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlm_ipc.errors import KernelBusy, KernelError, UnknownKernel
from rlm_kernel.supervisor.cells.cell_request import EXECUTE, CellRequest

MAX_QUEUE = 1000
_FULL = f"{MAX_QUEUE} requests are already waiting for this session; wait until some are done"

Operation = Callable[[], Awaitable[Any]]


@dataclass(slots=True, eq=False)
class QueuedOperation:
    """Work between two requests; ``future`` gets its result."""

    work: Operation
    future: asyncio.Future[Any]


Item = CellRequest | QueuedOperation


class RequestQueue:
    """The queue of the session ``kernel_id``. ``taken`` is the item in progress."""

    def __init__(self, kernel_id: str) -> None:
        self._kernel_id = kernel_id
        self.closed = False
        self.last_used = time.time()
        self.used = time.monotonic()
        """The same by the clock that nobody sets."""
        self.taken: Item | None = None
        self.waits: Callable[[CellRequest], None] = lambda _: None
        """Called with each request that is put into the queue."""
        self._waiting: deque[Item] = deque()
        self._filled: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        """True while no request is in progress, nothing waits, and something may still come."""
        return not (self._waiting or self.closed or isinstance(self.taken, CellRequest))

    @property
    def rests(self) -> bool:
        """True while nothing at all is in progress or waits, so that the next item starts at once."""
        return self.taken is None and not self._waiting

    @property
    def cell(self) -> CellRequest | None:
        """The cell that runs, or else the next one."""
        return next((request for request in self._requests() if request.kind == EXECUTE and not request.told), None)

    def _requests(self) -> Iterator[CellRequest]:
        return (item for item in (self.taken, *self._waiting) if isinstance(item, CellRequest))

    def enqueue(self, item: Item) -> None:
        """Put a request behind all others."""
        if isinstance(item, CellRequest):  # merely looking at a session must not keep it alive
            self.last_used, self.used = time.time(), time.monotonic()
        if self.closed:
            _fail(item, UnknownKernel(self._kernel_id))
        elif len(self._waiting) >= MAX_QUEUE:
            _fail(item, KernelBusy(_FULL))
        else:
            self._waiting.append(item)
            if self._filled is not None and not self._filled.done():
                self._filled.set_result(None)
            if isinstance(item, CellRequest):
                self.waits(item)

    def holds(self, request: CellRequest) -> bool:
        """Return whether a request has not started yet."""
        return any(item is request for item in self._waiting)

    def operation(self, work: Operation) -> asyncio.Future[Any]:
        """Run ``work`` between requests."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.enqueue(QueuedOperation(work, future))
        return future

    def leave(self, run: object) -> None:
        """Record that the caller of a request has gone."""
        for request in self._requests():
            request.left = request.left or request.run == run

    def withdraw(self, run: object) -> bool:
        """Prevent every request of that name from starting. Return False if there is none."""
        found = [request for request in self._requests() if request.run == run]
        for request in found:
            request.withdrawn = True
        return bool(found)

    def remove_cells(self, which: Callable[[CellRequest], bool]) -> list[CellRequest]:
        """Remove waiting cells."""
        cells = (item for item in self._waiting if isinstance(item, CellRequest) and item.kind == EXECUTE)
        removed = list(filter(which, cells))
        self._waiting = deque(item for item in self._waiting if not any(item is one for one in removed))
        return removed

    async def take(self) -> Item:
        """Wait for the next item."""
        while not self._waiting:
            self._filled = asyncio.get_running_loop().create_future()
            await self._filled
        self.taken = self._waiting.popleft()
        return self.taken

    def close(self, error: KernelError) -> None:
        """Accept nothing more. Everyone who waits gets ``error``."""
        self.closed = True
        items = [*([self.taken] if self.taken is not None else []), *self._waiting]
        self._waiting.clear()
        for item in items:
            _fail(item, error)


def _fail(item: Item, error: Exception) -> None:
    future = item.direct if isinstance(item, CellRequest) else item.future
    if future is not None and not future.done():
        future.set_exception(error)
