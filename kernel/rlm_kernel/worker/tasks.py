"""The event loop of a kernel: it runs cells, and the tasks that they leave, and survives whatever those do."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
Loop = asyncio.AbstractEventLoop


def pending(loop: Loop | None) -> Sequence[asyncio.Task[Any] | None]:
    """The tasks that still have to run.

    A task may be an object of a session's own class, which can raise when it is asked. Then the answer is one None.
    """
    if loop is None:
        return ()
    try:
        return tuple(asyncio.all_tasks(loop))
    except BaseException:
        return (None,)


def run(loop: Loop, work: Coroutine[Any, Any, Result] | asyncio.Future[Result]) -> Result:
    """Run the loop until ``work`` is done. ``exit()`` ends only the task that calls it."""
    future = asyncio.ensure_future(work, loop=loop)
    while True:
        try:
            return loop.run_until_complete(future)
        except (SystemExit, KeyboardInterrupt):
            # asyncio lets these two out of the loop, whichever task raised them: some other task's must not end this.
            if future.done():
                return future.result()


def forget(loop: Loop) -> list[object]:
    """The objects that must be kept for ever, because their finalisers would touch the loop of another process."""
    kept: list[object] = [loop]
    for task in pending(loop):
        # Else each task would report "Task was destroyed but it is pending!". A session's own class may refuse.
        with suppress(BaseException):
            object.__setattr__(task, "_log_destroy_pending", False)
        kept.append(task)
    return kept
