"""Searches for the daemon: off its event loop, and never longer than they are allowed to take.

Nearly every pattern is linear under RE2 and runs in a thread, without the interpreter lock.  The rest, patterns that
must backtrack (look-around and back-references with open repeats) or whose automata are huge, run in a helper process
that is kept, and killed when it overruns.
"""

from __future__ import annotations

from typing import Self

import anyio
import anyio.to_thread

from rlm_contexts.errors import HelperDied, HelperTimeout, ScanTimeout, SearchDied
from rlm_contexts.helpers.job import Helper, Job, JobLimits, only
from rlm_contexts.helpers.protocol import SearchAnswer, SearchText
from rlm_contexts.search.scan import search
from rlm_contexts.search.strategy import plan_for
from rlm_contexts.searches import ScanResult, SearchRequest
from rlm_contexts.store.files import text_path
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText

_HEAVY = 10_000  # RE2 instructions above which a search may be too slow for a thread
_START = 30.0  # seconds a process may take to start: on a busy machine, more than many searches may take
_GRACE = 1.0  # seconds a process may take beyond the search's own limit, to answer
_MEMORY = 2 << 30  # bytes a process may allocate: a text that it searches is mapped, and does not count
_ANSWER = 256 << 20  # bytes of an answer: a thousand lines of 2,000 characters are far less


class ScanWorkers:
    """Searches stored texts, for any number of tasks at once.  An async context manager."""

    def __init__(self, store: ContextStore, *, processes: int = 2) -> None:
        """Args: the store; the maximum number of processes for backtracking searches, each started when needed."""
        self._store = store
        self._idle: list[Helper] = []
        self._slots = anyio.Semaphore(processes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def scan(self, stored: StoredText, asked: SearchRequest) -> ScanResult:
        """Search a stored text.

        Errors as of `scan.scan`; also UnknownText, CorruptText, and SearchDied when the process died.
        """
        request = asked.checked()
        if await anyio.to_thread.run_sync(_needs_process, stored, request):
            return await self._in_process(stored, request)
        return await anyio.to_thread.run_sync(self._in_thread, stored, request, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """End the processes."""
        while self._idle:
            await anyio.to_thread.run_sync(self._idle.pop().close)

    def _in_thread(self, stored: StoredText, request: SearchRequest) -> ScanResult:
        return search(self._store.open(stored), request)

    async def _in_process(self, stored: StoredText, request: SearchRequest) -> ScanResult:
        with self._store.leased(stored):
            job = SearchText(str(text_path(self._store.root, stored.digest)), stored, request)
            async with self._slots:
                # Started here, in the thread of the event loop, because it ends with the thread that started it.
                helper = self._idle.pop() if self._idle else Helper(Job(job, [self._store.root / "texts"]), _MEMORY)
                seconds = request.seconds + request.count_seconds + _GRACE + _START * helper.is_fresh
                try:
                    answer = await anyio.to_thread.run_sync(_asked, helper, job, seconds, abandon_on_cancel=True)
                except HelperTimeout:
                    raise ScanTimeout(request.seconds) from None
                except HelperDied as problem:
                    raise SearchDied("the search process died; search again, or use a simpler pattern") from problem
                except BaseException:  # the caller gave up, and the thread that asks notices the end of the process
                    helper.kill()
                    raise
                self._idle.append(helper)
        if answer.is_late:
            raise ScanTimeout(request.seconds, answer.found.matches, answer.found.next_line)
        return answer.found


def _asked(helper: Helper, job: SearchText, seconds: float) -> SearchAnswer:
    """Ask it, and close it after an error: it may still be searching."""
    try:
        return only(helper.ask(job, JobLimits(seconds, _MEMORY, _ANSWER)))
    except BaseException:
        helper.close()
        raise


def _needs_process(stored: StoredText, request: SearchRequest) -> bool:
    plan = plan_for(request.pattern, stored.ascii, stored.crlf, request.syntax)
    return plan.backtracks or plan.weight > _HEAVY
