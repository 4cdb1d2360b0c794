"""Looks at the rows again after each change, and only once after a burst of changes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from rlm_memory.store import Store

_AFTER_FAULT_SECONDS = 1.0


async def look_after_changes(store: Store, look: Callable[[], bool], *, pause: float) -> None:
    """Call ``look`` now, and ``pause`` seconds after something has changed, until cancelled.

    It returns whether it succeeded: after a fault it is called again soon, even if nothing changes. The transactions of
    ``look`` itself do not count as changes.
    """
    loop, here, changed = asyncio.get_running_loop(), threading.get_ident(), asyncio.Event()
    looking = False

    def told() -> None:
        if threading.get_ident() != here:
            loop.call_soon_threadsafe(changed.set)
        elif not looking:
            changed.set()

    unwatch = store.watch(told)
    try:
        while True:
            looking = True
            succeeded = look()
            looking = False
            if not succeeded:
                loop.call_later(_AFTER_FAULT_SECONDS, changed.set)
            await changed.wait()
            await asyncio.sleep(pause)
            changed.clear()
    finally:
        unwatch()
