"""A cell that waits for the answers to its queries: which ones, and for how long its clock is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rlm_ipc.supervisor_protocol import Event, WaitsFor
from rlm_ipc.worker_protocol import Resolved, Waits
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.cells.limits import CellLimits
from rlm_kernel.supervisor.cells.query_book import QueryBook
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.relay.output_router import OutputRouter
from rlm_kernel.supervisor.relay.waiting_notes import SHOWN_AFTER_SECONDS, waits_for_answers


class AnswerWait:
    """Whether the running cell of a session waits for answers: its worker says so, and gets each one that arrives.

    Its clock is paused until all have arrived, or ``seconds`` have passed. ``report`` tells callers which ones it waits
    for; a person at a front end sees it.
    """

    def __init__(
        self,
        seconds: float,
        relay: OutputRouter,
        queries: QueryBook,
        processes: KernelProcesses,
        report: Callable[[Event], None],
    ) -> None:
        self._seconds, self._relay, self._queries = seconds, relay, queries
        self._processes, self._report = processes, report
        self._open: set[str] = set()
        self._stopped: CellLimits | None = None
        self._timers: tuple[asyncio.TimerHandle, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The queries without an answer; none when the cell does not wait."""
        return tuple(sorted(self._open))

    def begin(self, waits: Waits) -> None:
        """Start a wait of the running cell for answers. An empty list ends the wait: the cell was interrupted in it."""
        self.end()
        current, limits, queries = self._relay.current, self._relay.limits, self._queries
        if current is None or limits is None:
            return
        claimed = queries.claim(waits.ids, current.queries)
        if not claimed:
            return
        self._open, self._stopped = set(claimed), limits
        loop = asyncio.get_running_loop()
        self._timers = (
            loop.call_later(self._seconds, self._too_late),
            loop.call_later(SHOWN_AFTER_SECONDS, self._show, current),
        )
        limits.wait_for_input()
        self._tell()
        # Answers may have arrived before the cell started to wait.
        self.answer(Resolved({name: queries.answers[name] for name in claimed if name in queries.answers}))

    def answer(self, news: Resolved) -> None:
        """Give the waiting cell what has arrived."""
        live = self._processes.live
        if not self._open or live is None or not news.answers:
            return
        live.say(news)
        self._open.difference_update(news.answers)
        if not self._open:
            self._go_on()

    def _show(self, request: CellRequest) -> None:
        """Say in a front end what its cell waits for, unless a model answers, which needs nobody."""
        asked = (self._queries.pending.get(name) for name in self.ids)
        if request.direct is None and any(query is not None and query.mode == "blocking" for query in asked):
            self._relay.front.stream(request, "stderr", waits_for_answers(self.ids))

    def _too_late(self) -> None:
        live = self._processes.live
        if live is not None:
            live.say(Resolved(late=self.ids))
        self.end()

    def end(self) -> None:
        """Let the cell continue, with answers or without; call it before the cell's limits end."""
        if self._open:
            self._open.clear()
            self._go_on()

    def _go_on(self) -> None:
        assert self._stopped is not None
        for timer in self._timers:
            timer.cancel()
        self._stopped.input_came()
        self._tell()

    def _tell(self) -> None:
        self._report(WaitsFor(self.ids))
