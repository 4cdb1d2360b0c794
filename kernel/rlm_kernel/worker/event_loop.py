"""The event loop of a kernel process: it runs cells and the tasks that they leave, and survives whatever those do."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from asyncio import _set_running_loop
from collections.abc import Coroutine, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from rlm_ipc.signals import set_handler
from rlm_sandbox.language_wall.modules.system import new_loop

Result = TypeVar("Result")

# Objects of event loops that this process inherited and must not use. Nothing may ever collect them: their finalisers
# would close descriptor numbers that belong to other files by then.
_KEPT: list[object] = []
# All living tasks. Most cells create none, and finding the pending ones takes a dozen calls.
_TASKS: Sized | None = getattr(asyncio.tasks, "_scheduled_tasks", getattr(asyncio.tasks, "_all_tasks", None))


@contextmanager
def ended_by_interrupts(work: asyncio.Task[Any]) -> Iterator[None]:
    """Have an interrupt end a task: by `KeyboardInterrupt` while its own code runs, otherwise by cancelling it.

    ipykernel only cancels, with the next turn of the loop. A sleeping loop takes no turn unless it is woken.
    """
    loop = work.get_loop()

    def interrupted(*_: object) -> None:
        if asyncio.current_task(loop) is work:
            raise KeyboardInterrupt
        loop.call_soon_threadsafe(work.cancel)

    before = set_handler(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        set_handler(signal.SIGINT, before)


class EventLoop:
    """The loop of one process, which a fork of it must not use: the fork calls `abandon` and then `renew`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._context = contextvars.Context()

    def renew(self) -> None:
        """Start with a new loop, and with the context variables that the cells have set."""
        # A copy, because a fork inherits a context that its parent may be using, and nobody ever leaves it here.
        self._context = self._context.copy()
        self._loop = new_loop()
        asyncio.set_event_loop(self._loop)

    def close(self) -> None:
        """Close the loop of this same process."""
        if self._loop is not None:
            self._loop.close()
        self._loop = None
        asyncio.set_event_loop(None)

    def abandon(self) -> None:
        """In the child of a fork: give up the parent's loop without touching it, because its epoll is the parent's."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            _KEPT.append(loop)
            for task in self.pending():
                # Otherwise each task would report "Task was destroyed but it is pending!". A session's own class may
                # refuse.
                with suppress(BaseException):
                    object.__setattr__(task, "_log_destroy_pending", False)
                _KEPT.append(task)
            # The descriptors are closed by number. `loop.close()` would first unregister them, and EPOLL_CTL_DEL acts
            # on the epoll instance itself: the parent's loop would go deaf.
            for fd in self.descriptors():
                os.close(fd)
        self._loop = None
        asyncio.set_event_loop(None)
        # Signal handlers write to this descriptor, whose number may soon mean another file.
        signal.set_wakeup_fd(-1)

    def descriptors(self) -> tuple[int, ...]:
        """Return what the loop has open: its epoll, and the two ends of its wake-up line."""
        loop: Any = self._loop
        if loop is None:
            return ()
        return loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()

    def pending(self) -> Sequence[asyncio.Task[Any] | None]:
        """Return the tasks that still have to run.

        A task may be an object of a session's own class, which can raise when it is asked. Then the answer is one None.
        """
        if self._loop is None or (_TASKS is not None and len(_TASKS) == 0):
            return ()
        try:
            return tuple(asyncio.all_tasks(self._loop))
        except BaseException:
            return (None,)

    def run(self, work: Coroutine[Any, Any, Result] | asyncio.Future[Result]) -> Result:
        """Run the loop until ``work`` is done. ``exit()`` ends only the task that calls it.

        What a coroutine sets in context variables (the precision of decimals, numpy's print options) stays set for
        others.
        """
        assert self._loop is not None
        future = self.task(work) if asyncio.iscoroutine(work) else asyncio.ensure_future(work, loop=self._loop)
        while True:
            try:
                return self._loop.run_until_complete(future)
            except (SystemExit, KeyboardInterrupt):
                # asyncio lets these two out of the loop, whichever task raised them. If another task raised them, they
                # must not end this one.
                if future.done():
                    return future.result()

    def task(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Return a task that shares the context variables of all cells. Tasks of the cells have copies."""
        assert self._loop is not None
        return self._loop.create_task(work, context=self._context)

    @property
    def is_idle(self) -> bool:
        """Return whether nothing waits for a turn of the loop."""
        loop: Any = self._loop
        return not loop._ready and not loop._scheduled and not self.pending()

    def run_at_once(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run work that never waits, as a task of the running loop would, without a turn of the loop.

        A turn creates a task and two futures and asks the selector: each writes to pages that a copy of this process
        shares. The loop must be idle, otherwise its turn is due.
        """
        loop: Any = self._loop
        loop._thread_id = threading.get_ident()  # what `is_running` looks at
        _set_running_loop(loop)
        try:
            self._context.run(work.send, None)
        except StopIteration as done:
            result: Result = done.value
            return result
        finally:
            _set_running_loop(None)
            loop._thread_id = None
        raise RuntimeError("work that never waits has waited")

    def run_until_readable(self, descriptor: int) -> None:
        """Let the pending tasks run until something can be read."""
        assert self._loop is not None
        readable = self._loop.create_future()
        self._loop.add_reader(descriptor, _set, readable)
        try:
            self.run(readable)
        finally:
            self._loop.remove_reader(descriptor)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
