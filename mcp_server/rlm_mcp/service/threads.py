"""Threads for what blocks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Threads(ThreadPoolExecutor):
    """A pool whose work waits for the threads that are there when the machine gives no more of them."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # the work is queued by now: only where no thread will ever take it is that an error
            if not self._threads:
                raise
