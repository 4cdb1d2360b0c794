"""Looks at the rows again after each change, and only once after a burst of changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from rlm_memory.store import Store

_AFTER_FAULT_SECONDS = 1.0
_MOST_DOUBLINGS = 6


async def look_after_changes(store: Store, look: Callable[[], bool], *, pause: float) -> None:
    """Call ``look`` now, and ``pause`` seconds after something has changed, until cancelled.

    It returns whether it succeeded: after a fault it is called again soon, even if nothing changes, and after each
    further fault in a row half as often. The transactions of ``look`` itself do not count as changes.
    """
    loop, here, changed = asyncio.get_running_loop(), threading.get_ident(), asyncio.Event()
    looking, faults = False, 0

    def told() -> None:
        if threading.get_ident() != here:
            loop.call_soon_threadsafe(changed.set)
        elif not looking:
            changed.set()

    unwatch = store.watch(told)
    try:
        while True:
            looking = True
            faults = 0 if look() else faults + 1
            looking = False
            with suppress(TimeoutError):
                async with asyncio.timeout(_seconds_after(faults)):
                    await changed.wait()
            await asyncio.sleep(pause)
            changed.clear()
    finally:
        unwatch()


def _seconds_after(faults: int) -> float | None:
    """Return how long to wait without a change after so many faults in a row."""
    return _AFTER_FAULT_SECONDS * 2 ** min(faults - 1, _MOST_DOUBLINGS) if faults else None
