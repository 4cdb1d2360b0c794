"""The runs of one session: the active ones, and the latest finished ones, whose answers are kept for a while."""

from __future__ import annotations

from collections.abc import Iterator

from rlm_mcp.service.cells.run import Run

_MOST_KEPT = 64
"""How many finished runs keep their answers."""
_MOST_CHARS = 16_000_000
"""Characters of these answers together, the latest aside: under a policy with room an answer has millions."""


class SessionRuns:
    """The cost of a call does not depend on the number of kept runs."""

    def __init__(self) -> None:
        self._all: dict[str, Run] = {}
        self._active: dict[str, Run] = {}
        self._ended: dict[str, int] = {}
        """Characters of the answers of those that have ended, the first one first."""
        self._chars = 0
        self._asked: dict[str, Run] = {}
        """Those whose answer may have been rendered since it was measured."""

    def __iter__(self) -> Iterator[Run]:
        return iter(self._all.values())

    def add(self, run: Run) -> None:
        """Take the session's latest run, and forget those that are beyond the bounds now."""
        self._trim()
        self._all[run.id] = self._active[run.id] = run

    def active(self) -> list[Run]:
        """List the unfinished runs, the oldest first."""
        for run in [run for run in self._active.values() if run.outcome.done()]:
            del self._active[run.id]
            self._asked[run.id] = run
            self._ended[run.id] = 0
        return list(self._active.values())

    def find(self, run: str | None) -> Run | None:
        """Return the run of that id, or the latest one."""
        if run is None:
            run = next(reversed(self._all), "")
        found = self._all.get(run)
        if found is not None and found.outcome.done():
            self._asked[run] = found
        return found

    def _trim(self) -> None:
        self.active()
        for run in self._asked.values():
            run.let_go()
            self._measure(run)
        self._asked.clear()
        while len(self._ended) > 1 and (len(self._ended) > _MOST_KEPT or self._chars > _MOST_CHARS):
            oldest = next(iter(self._ended))
            self._chars -= self._ended.pop(oldest)
            del self._all[oldest]

    def _measure(self, run: Run) -> None:
        chars = len(run.answer.text or "") if run.answer else 0
        self._chars += chars - self._ended[run.id]
        self._ended[run.id] = chars
