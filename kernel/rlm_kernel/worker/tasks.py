"""The event loop of a kernel: it runs cells, and tasks that they leave, whatever these do and say of themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

Result = TypeVar("Result")
Loop = asyncio.AbstractEventLoop


def pending(loop: Loop | None) -> Sequence[asyncio.Task[Any] | None]:
    """The tasks that still have to run.

    A class of the session's may answer for them: where asking fails there is one (None) of which nothing is known.
    """
    if loop is None:
        return ()
    try:
        return tuple(asyncio.all_tasks(loop))
    except BaseException:
        return (None,)


def run(loop: Loop, work: Coroutine[Any, Any, Result] | asyncio.Future[Result]) -> Result:
    """Run the loop until ``work`` is done. What ends a program (``exit()``) ends only the task that raises it."""
    future = asyncio.ensure_future(work, loop=loop)
    while True:
        try:
            return loop.run_until_complete(future)
        except (SystemExit, KeyboardInterrupt):
            if future.done():
                return future.result()


def forget(loop: Loop) -> list[object]:
    """What must be kept for ever so that nothing of another process's loop is touched, also not by its end."""
    kept: list[object] = [loop]
    for task in pending(loop):
        with suppress(BaseException):  # a class of the session's may refuse; then its end is told, and no more
            object.__setattr__(task, "_log_destroy_pending", False)
        kept.append(task)
    return kept
