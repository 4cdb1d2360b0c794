"""What the live process of a session says besides its answers: output, queries, faults."""

from __future__ import annotations

from collections.abc import Callable

from rlm_ipc import framing, worker_protocol
from rlm_ipc.outcomes import Ended
from rlm_ipc.supervisor_protocol import Event, QueriesAsked
from rlm_ipc.worker_protocol import Asked, CellReply, CellStatus, Waits
from rlm_kernel.supervisor.cells.query_book import FULL, QueryBook, at_once
from rlm_kernel.supervisor.cells.request_queue import RequestQueue
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.processes.worker_link import WorkerLink, heard
from rlm_kernel.supervisor.relay.output_router import OutputRouter
from rlm_kernel.supervisor.running.answer_wait import AnswerWait


class KernelMessages:
    """Passes each message on to its handler. ``report`` tells callers about queries."""

    def __init__(
        self,
        relay: OutputRouter,
        queue: RequestQueue,
        queries: QueryBook,
        wait: AnswerWait,
        processes: KernelProcesses,
        report: Callable[[Event], None],
    ) -> None:
        self._relay, self._queue, self._queries = relay, queue, queries
        self._wait, self._processes, self._report = wait, processes, report

    def take(self, live: WorkerLink, message: framing.Message) -> None:
        """Handle one message; one that no kernel sends is dropped."""
        self._relay.hears()
        if message.tag in (worker_protocol.STDOUT, worker_protocol.STDERR):
            self._relay.text(message)
        elif message.tag == worker_protocol.Shown.TAG:
            self._relay.show(message)
        elif message.tag == Asked.TAG:
            self._asked(live, heard(Asked, message) or Asked())
        elif message.tag == Waits.TAG:
            self._wait.begin(heard(Waits, message) or Waits())
        elif message.tag == worker_protocol.ABORT:
            self._abort_waiting()
        elif message.tag == worker_protocol.FATAL:
            self._relay.fault(b"".join(message.parts))
        elif (channel := worker_protocol.CHANNELS.get(message.tag)) is not None:
            self._relay.forward(channel, message.parts)

    def _asked(self, live: WorkerLink, told: Asked) -> None:
        known = self._queries.known(told.queries) if self._relay.goes_on else []
        rows = self._queries.ask(told.queries)
        if rest := self._queries.rest(told.queries):
            live.stream.wait(rest)
        if self._queries.full and self._relay.limits is not None:
            self._relay.limits.stop(Ended.QUERY_LIMIT, FULL)
        self._processes.number_queries_from(self._queries.next_number)
        if self._relay.current is not None:
            asked = self._relay.current.queries
            before = set(asked) if known else set()
            asked += [*(query_id for query_id in known if query_id not in before), *(row.id for row in rows)]
        for some in at_once(rows):
            self._report(QueriesAsked(some))

    def _abort_waiting(self) -> None:
        """Abort the queued cells of a client whose cell failed (`stop_on_error`). Other clients' cells still run."""
        current = self._relay.current
        if current is not None and current.direct is None:
            for request in self._queue.remove_cells(lambda cell: cell.identities == current.identities):
                self._relay.front.fail(request, CellReply(CellStatus.ABORTED))
