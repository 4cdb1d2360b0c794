"""What a kernel says, on its way to the clients: text gathered and capped, replies sent on or held back."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_kernel import tags, wire
from rlm_kernel.displays import printable
from rlm_kernel.host.cells import LONGEST_CODE, CellLog, author_of, shown_content
from rlm_kernel.host.jupyter import Front
from rlm_kernel.host.limits import CellLimits
from rlm_kernel.host.output import CellOutput
from rlm_kernel.host.peer import LARGEST_JSON, Peer, load
from rlm_kernel.host.request import DISPLAYS, Request, direct_result, reply_in

if TYPE_CHECKING:
    from rlm_sandbox.policy_model import Limits

CHANNELS = {tags.IOPUB: "iopub", tags.SHELL: "shell", tags.CONTROL: "control", tags.STDIN: "stdin"}
MOST_HELD_BYTES = 64 << 20
MOST_FAULTS = 20
LONGEST_FAULT = 8192
SHOWN_KINDS = frozenset((*DISPLAYS, "update_display_data", "clear_output", "execute_input", "error"))
"""What a cell may show; a kernel that shows anything else is not heard."""
_UNREADABLE = {
    "status": "error",
    "ename": "KernelError",
    "evalue": f"what the kernel says about this cell is over {LARGEST_JSON >> 20} MiB or cannot be read; what the "
    "cell did is kept: raise shorter errors",
    "traceback": [],
}
_NOT_SHOWN = f"[not shown: over {LARGEST_JSON >> 20} MiB, or cannot be read]\n".encode()

log = logging.getLogger(__name__)


class Relay:
    """The outgoing side of one session.

    ``current`` is the request in flight with its ``limits``. With ``hold`` set for it, its reply and all that comes
    after wait for `release`: under strict checkpoints nothing is confirmed before its copy is taken. ``cells`` is told
    of the cells whose results nobody takes.
    """

    def __init__(self, kernel_id: str, front: Front, limits: Limits, spool: Path, cells: CellLog) -> None:
        self.kernel_id, self.front, self.policy_limits, self.spool = kernel_id, front, limits, spool
        self.cells = cells
        self.current: Request | None = None
        self.limits: CellLimits | None = None
        self.busy_since: float | None = None
        self._held: list[tuple[str, list[bytes]]] | None = None
        self._held_bytes = 0
        self._faults = 0

    def running(self) -> dict[str, Any]:
        """The cell that runs now (``code`` is None when none does) and what it has written so far."""
        request = self.current
        content = shown_content(request) if request is not None else None
        output = request.output if request is not None else None
        return {
            "code": str(content["code"])[:LONGEST_CODE] if content is not None else None,
            "author": author_of(request) if request is not None else "",
            "since": self.busy_since,
            **{name: output.text(name) if output is not None else "" for name in ("stdout", "stderr")},
        }

    def begin(self, request: Request, live: Peer, hold: bool) -> CellLimits:
        """A request goes to the kernel now: its clock starts."""
        request.started, self.busy_since = time.perf_counter(), time.time()
        spool = self.spool / f"{self.kernel_id}-{time.monotonic_ns()}.txt" if request.direct is not None else None
        allowed = self.policy_limits
        request.output = CellOutput(allowed.output_bytes, spool, allowed.content_bytes, self._publish_text)
        self._held, self._held_bytes = [] if hold else None, 0
        self.current = request
        self.limits = CellLimits(live, allowed.cell_seconds, allowed.interrupt_grace_seconds)
        if request.direct is not None:
            request.cell["watched"] = self.front.watched
            self.front.status(request, "busy")
        return self.limits

    def _publish_text(self, name: str, text: str) -> None:
        """Publish text of the request in flight. Its output does not hold the request, which holds the output."""
        self.front.stream(self.current, name, text)

    def end(self) -> None:
        """The request has been answered; what was held goes out."""
        held, self._held = self._held, None
        for channel, frames in held or ():
            self.front.send(channel, frames)
        self.current = self.limits = self.busy_since = None

    def forget_held(self) -> None:
        """What was held back was never true: the kernel that said it is gone."""
        self._held = None

    def text(self, message: wire.Message) -> None:
        """Text that code wrote; between requests (a task that still runs) it is published without a parent."""
        data = message.frames[0] if message.frames else b""
        if self.current is not None and self.current.output is not None:
            self.current.output.write(message.tag, data)
        else:
            name = "stdout" if message.tag == tags.STDOUT else "stderr"
            self.front.stream(None, name, data[: self.policy_limits.output_bytes].decode("utf-8", "replace"))

    def forward(self, channel: str, frames: tuple[bytes, ...]) -> None:
        """A Jupyter message of the kernel, which the host signs; what is none is dropped."""
        request, signed = self.current, self.front.signer.signed(frames)
        if signed is None:
            return
        if request is not None and request.output is not None:
            request.output.flush()
        if channel == "stdin" and self.limits is not None and request is not None and request.direct is None:
            self.limits.wait_for_input()
        if request is not None and request.direct is None:
            request.collect_message(channel, frames)
        if self._held is not None and (channel == "shell" or self._held):
            if self._held_bytes < MOST_HELD_BYTES:  # beyond is what no cell says: a reply, and that it is done
                self._held.append((channel, signed))
                self._held_bytes += sum(map(len, signed))
        else:
            self.front.send(channel, signed)

    def show(self, message: wire.Message) -> None:
        """What a direct cell shows: kept for its caller, and published to those who watch."""
        request, content = self.current, load(message)
        kind, shown, metadata = (content.get(key) for key in ("kind", "content", "metadata"))
        if not content and request is not None and request.output is not None:
            request.output.write(tags.STDERR, _NOT_SHOWN)
        if request is None or request.direct is None or not isinstance(shown, dict):
            return
        if not isinstance(kind, str) or kind not in SHOWN_KINDS:
            return
        if request.output is not None:
            request.output.flush()
        if kind in DISPLAYS:
            request.collect(kind, shown.get("data"), sum(map(len, message.frames)))
        known = metadata if isinstance(metadata, dict) else {}
        self.front.publish(request, kind, shown, known, buffers=message.frames[1:])

    def fault(self, said: bytes) -> None:
        """Write into the log what a kernel calls a fault of its own: so much that no kernel can fill the disk."""
        self._faults += 1
        if self._faults <= MOST_FAULTS:
            fault = said[-LONGEST_FAULT:].decode("utf-8", "replace")
            log.error("kernel %s reports a fault of its own:\n%s", self.kernel_id, printable(fault, keep="\n"))

    def succeed(self, request: Request, summary: dict[str, Any], limits: CellLimits) -> None:
        """The kernel has answered: hand the result to a caller of the host."""
        if request.direct is not None:
            request.reply = reply_in(summary) or _UNREADABLE
            self.front.status(request, "idle")
        if limits.stopped_for and request.reply and request.reply.get("status") == "error":
            request.reply |= {"ename": limits.stopped_for, "evalue": limits.reason}
        self._settle(request, summary)

    def fail(self, request: Request, name: str, message: str) -> None:
        """No kernel will answer: tell the Jupyter client, or the caller of the host."""
        if request.output is not None:
            request.output.flush()
        content = {"status": "error", "ename": name, "evalue": message, "traceback": [f"{name}: {message}"]}
        self.front.fail(request, content)
        request.reply = content
        self._settle(request, {})

    def _settle(self, request: Request, summary: dict[str, Any]) -> None:
        if request.direct is not None and not request.direct.done():
            seconds = time.perf_counter() - request.started if request.started else 0.0
            request.direct.set_result(direct_result(request, summary, seconds))
            return
        self.cells.note(request, self.busy_since)
        if request.output is not None and (spool := request.output.close()) is not None:
            spool.unlink(missing_ok=True)
