"""Threads for blocking work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class Threads(ThreadPoolExecutor):
    """A pool whose work waits for existing threads if no more can be started."""

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:  # the work is already queued: this is an error only if the pool has no thread
            if not self._threads:
                raise
