"""The cells of one session by the names that their callers gave them: no name runs twice.

A caller that asked an earlier supervisor, or lost its connection, repeats its call in the same words.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from rlm_ipc.errors import ProcessError
from rlm_ipc.kernel_reports import CellResult
from rlm_kernel.supervisor.keeping.session_file import FAILED, FailedRun, SessionFile

ANSWER_LOST = (
    "the cell has run, but its answer was lost with the supervisor; look at the variables before you run it again"
)
_NAMES_KEPT = 256
"""How many successful cells are remembered, because a later cell of their batch may still arrive."""


class NamedRuns:
    """The cells whose callers wait for an answer. ``file`` knows the names of the latest ones that have started."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._futures: dict[str, asyncio.Future[CellResult]] = {}
        self._well: deque[str] = deque(maxlen=_NAMES_KEPT)

    def of(self, name: str) -> asyncio.Future[CellResult] | None:
        """Return the result of the cell with that name; None if it never started."""
        known = self._futures.get(name)
        if known is None and self._file.knows_run(name):
            known = asyncio.get_running_loop().create_future()
            answer_again(known, name, self._file)
        return known

    def enter(self, name: str, future: asyncio.Future[CellResult]) -> None:
        """Enter a cell with that name that is queued or continues. Nobody has asked for earlier results until now."""
        while (first := next(iter(self._futures), None)) is not None and self._futures[first].done():
            self.told(first)  # they end in the order in which they were entered
        self._futures[name] = future

    def condition(self, name: str) -> Callable[[], bool] | None:
        """Return a check that the cell of that name succeeded, to be made as its follower starts; None without one."""
        if not name:
            return None
        future = self._futures.get(name)
        if future is not None:
            return lambda: _ended_well(future)
        went_well = name in self._well
        return lambda: went_well

    def told(self, name: str) -> None:
        """Record that its caller is about to get the result; if it is lost on the way, the kernel itself repeats it."""
        future = self._futures.pop(name, None)
        if future is not None and _ended_well(future):
            self._well.append(name)


def _ended_well(future: asyncio.Future[CellResult]) -> bool:
    if not future.done() or future.exception() is not None:
        return False
    return future.result().status == "ok"


def answer_again(future: asyncio.Future[CellResult], name: object, file: SessionFile) -> None:
    """Answer a cell that has already run from ``file``. If that has only another cell's answer, this one's is lost."""
    failed = file.read(FAILED, FailedRun)
    if failed.run == name and failed.result is not None:
        future.set_result(failed.result)
    else:
        future.set_exception(ProcessError(ANSWER_LOST))
