"""Time limits for searches: checked between steps, and, in a process's main thread, inside `re` as well."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Expired(Exception):  # a control-flow signal, never seen by callers
    """The time is up."""


class Deadline:
    """A moment of the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        """Args: seconds from now."""
        self.at = time.monotonic() + seconds

    def check(self) -> None:
        """Raises: Expired."""
        if time.monotonic() > self.at:
            raise Expired


def can_interrupt() -> bool:
    """Return whether `interrupting` works here: signals are delivered to the main thread only."""
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()


@contextmanager
def interrupting(seconds: float) -> Iterator[None]:
    """Raise Expired in the main thread after `seconds`, even from within a running regular expression.

    `re` checks for signals while it backtracks.  A timer that was running before is set again afterwards.
    """
    armed = True

    def expire(_number: int, _frame: FrameType | None) -> None:
        if armed:
            raise Expired

    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, expire)
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if remaining:
            passed = time.monotonic() - started
            signal.setitimer(signal.ITIMER_REAL, max(remaining - passed, 1e-6), interval)
