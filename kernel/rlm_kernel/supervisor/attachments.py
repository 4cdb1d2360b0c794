"""Attachments: the front ends of a session, each on its own connection to the control socket, with its own rights.

A front end starts the bridge (`rlm_kernel.jupyter.bridge`) where it expects a kernel. The bridge passes raw Jupyter
messages on, and everything is decided here. Whatever a front end does, the session continues: closing, restarting and
crashing end only the attachment. Its interrupt reaches its own cells, and the agent's only if the policy allows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rlm_ipc import framing
from rlm_ipc.framed_stream import Stream
from rlm_ipc.jupyter_wire import object_in, well_formed
from rlm_ipc.messages import JsonObject
from rlm_ipc.supervisor_protocol import AttachmentChanged, Recovered
from rlm_ipc.supervisor_wire import GOODBYE
from rlm_ipc.worker_protocol import CHANNELS, TAGS, CellReply, CellStatus
from rlm_kernel.supervisor.cells.cell_request import EXECUTE, CellRequest
from rlm_kernel.supervisor.processes.patience import retrieved
from rlm_kernel.supervisor.relay.broadcaster import ATTACHED
from rlm_kernel.supervisor.session import SupervisedSession

HARMLESS = frozenset(("comm_info_request", "history_request", "is_complete_request", "kernel_info_request"))
"""The requests of an attachment that only watches: none of them runs code of the session or changes it."""
MOST_UNREAD_BYTES = 64 << 20
"""Maximum bytes that wait for a front end that has stopped reading; beyond that, its attachment is closed."""
SECOND_THOUGHT_SECONDS = 0.3
"""How long an interrupt waits. Jupyter sends one before a shutdown, and that one must not end an agent's cell."""

_INTERRUPT = ("KeyboardInterrupt", "the cell was interrupted before it began")
_NOT_BEGUN = CellReply(CellStatus.ERROR, ename=_INTERRUPT[0], evalue=_INTERRUPT[1], traceback=(": ".join(_INTERRUPT),))


class Attachment:
    """One front end of ``session``, called ``name`` in the journal. One that only ``watches`` runs nothing.

    Its requests are known by its ``line``, which is the same for each supervisor.
    """

    def __init__(self, session: SupervisedSession, stream: Stream, name: str, line: str, *, watches: bool) -> None:
        self.session, self.name, self.watches = session, name, watches
        self.prefix = ATTACHED + line.encode()
        self._stream = stream
        self._second_thought: asyncio.TimerHandle | None = None
        self._closed = False
        self._first: list[tuple[str, Sequence[bytes]]] | None = []
        """Messages to send after the answer to the bridge, which drops anything earlier."""
        asyncio.get_running_loop().call_soon(self._begin)
        session.front.attach(self.prefix, self)
        self._tell(True)

    def close(self, why: str = "") -> None:
        """End the attachment, and withdraw or stop what its front end has asked for; ``why`` its kernel is gone."""
        if self._closed:
            return
        if why:
            self._stream.send(GOODBYE, (why.encode(),))
        self._closed = True
        if self._second_thought is not None:
            self._second_thought.cancel()
        self.session.front.attachments.pop(self.prefix, None)
        self.session.queue.withdraw(self.prefix)
        if self.session.runs(self.prefix):
            self.session.interrupt(escalate=True)
        self._tell(False)
        self._stream.close()

    def _begin(self) -> None:
        first, self._first = self._first or (), None
        for channel, parts in first:
            self.send(channel, parts)

    def send(self, channel: str, parts: Sequence[bytes]) -> None:
        """Pass a message on to the front end."""
        if self._first is not None:
            self._first.append((channel, parts))
            return
        if self._stream.unsent > MOST_UNREAD_BYTES:
            asyncio.get_running_loop().call_soon(self.close)
            return
        self._stream.send(TAGS[channel], parts)

    def receive(self, message: framing.Message) -> None:
        """Handle a message of the front end; malformed messages are dropped."""
        message.close()
        channel, parts = CHANNELS.get(message.tag), list(message.parts)
        if channel in (None, "iopub") or not well_formed(parts):
            return
        parts = [self.prefix, *parts]
        request = CellRequest.of_client(message.tag, parts, run=self.prefix, attachment=self.name)
        if channel == "stdin":
            if self.session.runs(self.prefix):
                self.session.clients.input_came(parts)
        elif request.kind == "kernel_info_request" and self.session.kernel_info:
            self._answer(request, {"status": "ok", **self.session.kernel_info})
        elif channel == "control" and request.kind in _CONTROLS:
            _CONTROLS[request.kind](self, request)
        elif self.watches and request.kind not in HARMLESS:
            self._refuse(request)
        else:
            self.session.queue.enqueue(request)

    # -- requests that the supervisor answers itself, at once, even while a cell runs

    def _interrupt(self, request: CellRequest) -> None:
        self._answer(request, {"status": "ok"})
        cell = self.session.cell
        if cell is not None and cell.run == self.prefix:
            self.session.interrupt()
        elif self.session.policy.attachments.interrupt == "any" and not self.watches:
            loop = asyncio.get_running_loop()
            self._second_thought = loop.call_later(SECOND_THOUGHT_SECONDS, self.session.interrupt)
        else:
            for waiting in self.session.queue.remove_cells(lambda cell: cell.run == self.prefix):
                self.session.front.fail(waiting, _NOT_BEGUN)

    def _shut_down(self, request: CellRequest) -> None:
        restart = bool(object_in(request.parts, 5).get("restart"))
        self._answer(request, {"status": "ok", "restart": restart})
        if restart and self.session.policy.attachments.restart == "fresh" and not self.watches:
            asyncio.ensure_future(self._begin_anew()).add_done_callback(retrieved)
        self._stream.send(GOODBYE)

    async def _begin_anew(self) -> None:
        await self.session.restart()
        self.session.report(Recovered(anew=True))

    def _answer(self, request: CellRequest, content: JsonObject) -> None:
        front, channel = self.session.front, CHANNELS[request.tag]
        self._status(request, "busy")
        kind = request.kind.replace("_request", "_reply")
        self.send(channel, [*request.identities[1:], *front.signer.parts(kind, request.header or b"{}", content)])
        self._status(request, "idle")

    def _refuse(self, request: CellRequest) -> None:
        name = "ReadOnlyAttachment"
        why = "this front end only watches the session, so its code is not run; open the session without --watch"
        content = {"status": "error", "ename": name, "evalue": why, "traceback": [f"{name}: {why}"]}
        if request.kind == EXECUTE:
            self._show(request, "error", {key: content[key] for key in ("ename", "evalue", "traceback")})
        self._answer(request, content)

    def _status(self, request: CellRequest, state: str) -> None:
        self._show(request, "status", {"execution_state": state})

    def _show(self, request: CellRequest, kind: str, content: JsonObject) -> None:
        """Publish to this front end alone."""
        self.send("iopub", [kind.encode(), *self.session.front.signer.parts(kind, request.header or b"{}", content)])

    def _tell(self, is_open: bool) -> None:
        self.session.report(AttachmentChanged(self.name, open=is_open))


_CONTROLS = {"interrupt_request": Attachment._interrupt, "shutdown_request": Attachment._shut_down}
