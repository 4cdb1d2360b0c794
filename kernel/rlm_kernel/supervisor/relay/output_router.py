"""A kernel's output on its way to the clients: text is gathered and capped, replies are forwarded or held back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from rlm_ipc import framing, worker_protocol
from rlm_ipc.displays import printable
from rlm_ipc.kernel_reports import RunningCell
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.outcomes import Ended, Loss
from rlm_ipc.supervisor_protocol import OutputSoFar
from rlm_ipc.worker_protocol import CellDone, CellReply, CellStatus, Shown
from rlm_kernel.supervisor.cells.cell_log import LONGEST_CODE, CellLog, shown_author, shown_content
from rlm_kernel.supervisor.cells.cell_output import CellOutput
from rlm_kernel.supervisor.cells.cell_request import DISPLAYS, EXECUTE, CellRequest, Parent, direct_result
from rlm_kernel.supervisor.cells.limits import CellLimits
from rlm_kernel.supervisor.keeping.session_file import SessionFile
from rlm_kernel.supervisor.processes.kernel_json import LARGEST_JSON
from rlm_kernel.supervisor.processes.worker_link import WorkerLink, heard
from rlm_kernel.supervisor.relay.broadcaster import JupyterBroadcaster
from rlm_kernel.supervisor.relay.leaving import told_to_end
from rlm_sandbox.policy.model import Limits

MOST_HELD_BYTES = 64 << 20
MOST_FAULTS = 20
LONGEST_FAULT = 8192
LEAST_SECONDS = 0.2
"""The minimum remaining time of a cell that continues under another supervisor."""
SHOWN_KINDS = frozenset((*DISPLAYS, "update_display_data", "clear_output", "execute_input", "error"))
"""The kinds of messages that a cell may show; any other kind from a kernel is dropped."""
WRITING_KINDS = frozenset((EXECUTE, "comm_open", "comm_msg", "comm_close"))
"""The kinds of requests with output of their own. Output during any other request belongs to the latest cell."""
_UNREADABLE = CellReply(
    CellStatus.ERROR,
    ename="KernelError",
    evalue=f"the cell ran, but its reply is over {LARGEST_JSON >> 20} MiB or cannot be read; its variables are "
    "kept: raise shorter errors",
)
_NOT_SHOWN = f"[not shown: the output is over {LARGEST_JSON >> 20} MiB or cannot be read]\n".encode()

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A request that another supervisor sent out ``seconds`` ago: ``shown`` messages about it were shown."""

    began: float
    seconds: float
    shown: int


class OutputRouter:
    """The outgoing side of one session.

    ``current`` is the request in flight with its ``limits``. If it began with ``hold``, its reply and everything after
    that wait for `end`: under strict checkpoints nothing is confirmed before its copy is taken. ``cells`` records the
    cells whose results nobody takes.
    """

    def __init__(self, kernel_id: str, front: JupyterBroadcaster, limits: Limits, spool: Path, cells: CellLog) -> None:
        self.kernel_id, self.front, self.policy_limits, self.spool = kernel_id, front, limits, spool
        self.cells = cells
        self.current: CellRequest | None = None
        self.limits: CellLimits | None = None
        self.busy_since: float | None = None
        self.file: SessionFile | None = None
        """Where the number of messages of a request that watchers have seen is recorded."""
        self.owner = ""
        """The Jupyter session of the client that started the kernel for itself."""
        self._heard = self._shown_before = 0
        """How many messages about the request have arrived, and how many of them another supervisor has shown."""
        self.goes_on = False
        """Whether another supervisor sent out the request: the kernel may repeat what it said about it."""
        self._held: list[Callable[[], None]] | None = None
        self._held_bytes = 0
        self._faults = 0
        self._latest: Parent | None = None
        """What remains of the latest cell that has ended: enough to add to its output."""
        self._late: CellOutput | None = None
        """What its threads and tasks have written since then."""

    def running(self) -> OutputSoFar:
        """Return the cell that runs now, and its output so far."""
        request = self.current
        content = shown_content(request) if request is not None else None
        output = request.output if request is not None else None
        cell = None
        if request is not None and content is not None and self.busy_since is not None:
            run = request.run if request.direct is not None and isinstance(request.run, str) else ""
            cell = RunningCell(str(content["code"])[:LONGEST_CODE], shown_author(request), self.busy_since, run)
        if output is None:
            return OutputSoFar("", "", cell)
        return OutputSoFar(output.text("stdout"), output.text("stderr"), cell)

    def hears(self) -> None:
        """Record that a message of the kernel has arrived, before it is processed."""
        self._heard += 1
        if self.current is not None and self.current.output is not None:
            self.current.output.published = self._is_news

    @property
    def _is_news(self) -> bool:
        return self._heard > self._shown_before

    @property
    def _may_be_known(self) -> bool:
        """Return whether another supervisor may have died after showing the message but before recording that."""
        return self.goes_on and self._heard == self._shown_before + 1

    def _note_shown(self) -> None:
        if self.file is not None and self._is_news and not self._held:
            self.file.note_published(self._heard)

    def begin(
        self, request: CellRequest, live: WorkerLink, hold: bool, taken_over: TakenOver | None = None
    ) -> CellLimits:
        """Start the clock of a request that goes to the kernel now, or was sent to it by another supervisor."""
        request.started, self.busy_since = time.perf_counter(), time.time()
        before = 0.0
        self._heard = self._shown_before = 0
        self.goes_on = taken_over is not None
        if taken_over is not None:
            self.busy_since, before, self._shown_before = taken_over.began, taken_over.seconds, taken_over.shown
            request.started -= before
        spool = f"{self.spool}/{self.kernel_id}-{time.monotonic_ns()}.txt" if request.direct is not None else None
        allowed = self.policy_limits
        if request.kind in WRITING_KINDS:
            self._no_longer_late()
            request.output = CellOutput(allowed.output_bytes, spool, allowed.content_bytes, self._publish_text)
        self._held, self._held_bytes = [] if hold else None, 0
        self.current = request
        remaining = max(LEAST_SECONDS, allowed.cell_seconds - before)
        self.limits = CellLimits(live, remaining, allowed.interrupt_grace_seconds, of=allowed.cell_seconds)
        if request.says_that_it_waits:
            self.front.publish(request, "clear_output", {"wait": False})
        if request.direct is not None and taken_over is None:
            self.front.status(request, "busy")
        return self.limits

    def _publish_text(self, name: str, text: str) -> None:
        """Publish text of the request in flight. The output has no reference to the request, which would be a cycle."""
        self.front.stream(self.current, name, text)
        self._note_shown()

    def end(self) -> None:
        """Send what was held, now that the request has been answered."""
        held, self._held = self._held, None
        for send in held or ():
            send()
        if (request := self.current) is not None and request.kind == EXECUTE:
            self._no_longer_late()
            self._latest = Parent(request.kind, request.header)
        self.current = self.limits = self.busy_since = None

    def forget_held(self) -> None:
        """Drop what was held back: its kernel is gone, and with it the cell that it confirms."""
        self._held = None

    def text(self, message: framing.Message) -> None:
        """Pass on text that code wrote. What threads and tasks write between requests belongs to the latest cell."""
        data = message.parts[0] if message.parts else b""
        output = self._output
        if output is None:
            output = self._late = CellOutput(self.policy_limits.output_bytes, None, 0, self._publish_late)
        output.write(message.tag, data)

    @property
    def _output(self) -> CellOutput | None:
        """Return where text that is written now goes."""
        own = self.current.output if self.current is not None else None
        return self._late if own is None else own

    def _publish_late(self, name: str, text: str) -> None:
        self.front.stream(self._latest, name, text)

    def _no_longer_late(self) -> None:
        if self._late is not None:
            self._late.flush()
            self._late = None

    def forward(self, channel: str, parts: tuple[bytes, ...]) -> None:
        """Sign and forward a Jupyter message of the kernel; malformed messages are dropped."""
        if sum(map(len, parts)) > LARGEST_JSON:
            self._refuse(channel)
            return
        message = told_to_end(parts, self.owner) if channel == "shell" else parts
        request, signed = self.current, self.front.signer.signed(message, again=self._may_be_known)
        if signed is None:
            return
        if (output := self._output) is not None:
            output.flush()
        if channel == "stdin" and self.limits is not None and request is not None and request.direct is None:
            self.limits.wait_for_input()
        if request is not None and request.direct is None:
            request.collect_message(channel, parts)
        if not self._is_news:
            return
        if self._held is not None and (channel == "shell" or self._held):
            if self._held_bytes < MOST_HELD_BYTES:  # a reply and an idle status are small; more is hostile
                self._held.append(partial(self.front.send, channel, signed))
                self._held_bytes += sum(map(len, signed))
        else:
            self.front.send(channel, signed)
            self._note_shown()

    def _refuse(self, channel: str) -> None:
        """Say that a message is too large, in its place: a front end would lose its attachment over it."""
        request = self.current
        if channel in ("iopub", "stdin"):
            self.text(framing.Message(worker_protocol.STDERR, (_NOT_SHOWN,)))
        elif channel == "shell" and request is not None and request.direct is None:
            request.reply = _UNREADABLE
            if not self._is_news:
                return
            refusal = partial(self.front.fail, request, _UNREADABLE)
            if self._held is not None:
                self._held.append(refusal)
            else:
                refusal()
                self._note_shown()

    def show(self, message: framing.Message) -> None:
        """Keep what a direct cell shows for its caller, and publish it to watchers."""
        request, shown = self.current, heard(Shown, message)
        if shown is None and request is not None and request.output is not None:
            request.output.write(worker_protocol.STDERR, _NOT_SHOWN)
        if request is None or request.direct is None or shown is None or shown.kind not in SHOWN_KINDS:
            return
        if request.output is not None:
            request.output.flush()
        if shown.kind in DISPLAYS:
            request.collect(shown.kind, shown.content.get("data"), sum(map(len, message.parts)))
        if self._is_news:
            self.front.publish(request, shown.kind, shown.content, shown.metadata, buffers=message.parts[1:])
            self._note_shown()

    def fault(self, said: bytes) -> None:
        """Log a fault that a kernel reports, within bounds, so that no kernel can fill the disk."""
        self._faults += 1
        if self._faults <= MOST_FAULTS:
            fault = said[-LONGEST_FAULT:].decode("utf-8", "replace")
            log.error("kernel %s reports a fault of its own:\n%s", self.kernel_id, printable(fault, keep="\n"))

    def succeed(self, request: CellRequest, done: CellDone, limits: CellLimits) -> None:
        """Hand the kernel's result to the caller of the supervisor."""
        if request.direct is not None:
            request.reply = done.reply or _UNREADABLE
            if request.output is not None:
                request.output.flush()
            self.front.status(request, "idle")
        reply = request.reply
        if reply is not None and limits.ended not in (None, Ended.INTERRUPTED) and reply.status is CellStatus.OK:
            # A stopped finaliser, or code that caught the interrupt: in both cases the cell did not end by itself.
            reply = request.reply = replace(reply, status=CellStatus.ERROR)
        if limits.ended is not None and reply is not None and reply.status is CellStatus.ERROR:
            request.ended, request.reason = limits.ended, limits.reason
        self._resolve(request, done)

    def skip(self, request: CellRequest) -> None:
        """Answer for a cell that does not start after one that failed. Watchers do not see it."""
        request.ended, request.reason = Ended.SKIPPED, "an earlier cell of its batch did not succeed"
        if request.direct is not None and not request.direct.done():
            request.direct.set_result(direct_result(request, CellDone(), 0.0))

    def fail(self, request: CellRequest, ended: Ended, reason: str, loss: Loss | None = None) -> None:
        """Answer in place of a kernel that will not: to the Jupyter client, or to the caller of the supervisor."""
        if request.output is not None:
            request.output.flush()
        request.ended, request.reason, request.loss = ended, reason, loss
        name, message = ended.error_name, request.why
        traceback = (f"{name}: {message}",)
        request.reply = CellReply(CellStatus.ERROR, ename=name, evalue=message, traceback=traceback)
        self.front.fail(request, request.reply)
        self._resolve(request, CellDone())

    def _resolve(self, request: CellRequest, done: CellDone) -> None:
        if request.direct is not None and not request.direct.done():
            seconds = time.perf_counter() - request.started if request.started else 0.0
            request.direct.set_result(direct_result(request, done, seconds))
            if not request.left:
                return
        self.cells.note(request, self.busy_since)
        if request.output is not None and (spool := request.output.close()) is not None:
            spool.unlink(missing_ok=True)
