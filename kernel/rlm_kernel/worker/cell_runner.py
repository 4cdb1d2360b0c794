"""Runs a cell, or another request of a Jupyter client, and reports to the supervisor what it has changed."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from rlm_ipc.messages import JsonObject
from rlm_ipc.worker_protocol import CellDone, CellReply, CellStatus, RefusedAttempts, RunCell
from rlm_kernel.worker._bindings import noted
from rlm_kernel.worker.ipykernel_adapter import may_wait
from rlm_kernel.worker.session_state import user_code
from rlm_kernel.worker.variables import changed, prune
from rlm_kernel.worker.worker_process import WorkerProcess
from rlm_sandbox.language_wall.audit_hook import refusals


class CellRunner:
    """Runs the requests of one process, one at a time."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._refused = (0, 0)
        """Attempts that the audit hook refused, and cells that the compiler refused, up to the last report."""

    def run_cell(self, cell: RunCell, *, rehearsed: bool = False) -> None:
        """Run a cell; see `run`. One without ``await`` needs no turn of the event loop, unless a task waits for it."""
        kernel = self._process.kernel
        at_once = kernel.walled and not may_wait(cell.code) and self._process.loop.is_idle
        self.run(kernel.run_cell(cell), at_once=at_once, rehearsed=rehearsed)

    def run(
        self, work: Coroutine[Any, Any, JsonObject | None], *, at_once: bool = False, rehearsed: bool = False
    ) -> None:
        """Run one request and report that it is done, with the reply if it was a cell.

        Nobody receives the report of a ``rehearsed`` request, so it takes nothing from the next report.
        """
        process = self._process
        before, reply = noted(process.namespace), None
        # Busy, reply, idle and the report leave in one write: each write wakes the supervisor.
        process.link.hold(True)
        try:
            reply = process.loop.run_at_once(work) if at_once else process.loop.run(work)
        finally:
            process.kernel.interrupted = False
            process.send(self._report(reply, before, rehearsed))
            process.link.hold(False)

    def _report(self, reply: JsonObject | None, before: bytes, rehearsed: bool) -> CellDone:
        process, state, names = self._process, self._process.session, self._process.namespace
        shell, shadowed, returned, answers = process.kernel.shell, [], set(), None
        with user_code(state):  # releasing an object may call code that the user gave it
            try:
                if state is not None:
                    state.rebind(names)
                prune(names, process.hidden, shell.history_manager, shell.execution_count)
            except BaseException:  # a key may raise when it is compared
                pass
            defined = changed(before, names, process.hidden)
            if state is not None and not rehearsed:
                answers = state.given(names)
        if state is not None and state.contexts:
            shadowed, returned = state.shadowed(names), state.returned
            defined = [name for name in defined if name not in state.contexts or name in shadowed]
        counts, before_it, refused = (refusals(), shell.compile.refused_cells), self._refused, _NONE
        if counts != before_it:
            refused = RefusedAttempts(counts[0] - before_it[0], counts[1] - before_it[1])
        if not rehearsed:
            self._refused = counts
            if state is not None:
                state.returned = set()
        told = None if reply is None else _reply(reply)
        return CellDone(told, tuple(defined), tuple(shadowed), tuple(sorted(returned)), refused, answers)


def _reply(reply: Mapping[str, Any]) -> CellReply:
    """Return the part of Jupyter's reply to a cell that the supervisor needs."""
    status, count = _STATUSES[reply["status"]], reply.get("execution_count")
    if status is CellStatus.OK:
        return CellReply(status, count)
    lines = tuple(map(str, reply.get("traceback") or ()))
    return CellReply(status, count, str(reply.get("ename", "")), str(reply.get("evalue", "")), lines)


_NONE = RefusedAttempts()
_STATUSES = {status.value: status for status in CellStatus}
