"""Work beside the event loop: in threads, and in tasks that no caller waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread. A cancelled caller waits for its end."""
    doing = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise


class Threads(ThreadPoolExecutor):
    """A pool whose work waits for existing threads if no more can be started."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # the work is already queued: this is an error only if the pool has no thread
            if not self._threads:
                raise


class BackgroundTasks:
    """Tasks of one owner. It keeps references to them, because the event loop does not, and they could vanish."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Start a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Cancel the running tasks."""
        for task in list(self._tasks):
            task.cancel()

    async def wait(self) -> None:
        """Wait for the running tasks."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
