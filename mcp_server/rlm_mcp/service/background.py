"""Work that goes on in tasks while nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Have something done in a thread. A caller that is cancelled waits for its end: nobody else is in its way."""
    doing = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait({doing})
        raise


class BackgroundTasks:
    """Tasks of one owner. The event loop keeps no reference to a task: one that nobody holds may vanish half done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[Any]:
        """Have something done."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Give up what is under way."""
        for task in list(self._tasks):
            task.cancel()

    async def wait(self) -> None:
        """Return when nothing is under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
