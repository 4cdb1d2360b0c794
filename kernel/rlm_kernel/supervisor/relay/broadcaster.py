"""What the supervisor itself says to Jupyter clients on behalf of a session, signed with the session's key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import zmq

from rlm_ipc import worker_protocol
from rlm_ipc.jupyter_wire import Received, Signer
from rlm_ipc.messages import JsonObject
from rlm_ipc.outcomes import KERNEL_STOPPED
from rlm_ipc.worker_protocol import CellReply, CellStatus
from rlm_kernel.supervisor.cells.cell_request import CellRequest, Parent
from rlm_kernel.supervisor.relay.sockets import SUBSCRIBED_SECONDS, JupyterSockets

ATTACHED = b"\0attachment"
"""How the names of front ends at attachments begin.

No zmq client has such a routing id: a client's own id cannot begin with a zero byte, and the ids that zmq generates
have exactly five bytes.
"""
BACK_SECONDS = 10.0
"""How long messages wait for front ends that belonged to another supervisor."""
MOST_MISSED_BYTES = 16 << 20
"""Beyond this many bytes in the meantime, nothing waits."""


class FrontEnd(Protocol):
    """A front end that is informed over a line of its own; see `attachments.Attachment`."""

    @property
    def name(self) -> str:
        """The journal's name for its attachment."""
        ...

    def send(self, channel: str, parts: Sequence[bytes]) -> None:
        """Pass a message on to it."""
        ...

    def close(self, why: str = "") -> None:
        """Disconnect it; ``why`` says why the kernel is gone."""
        ...


class JupyterBroadcaster:
    """The sockets of a session and its attachments (by the prefix of their requests).

    What the supervisor itself says there.
    """

    def __init__(self, context: zmq.Context[Any], connection: JsonObject, on_frames: Any) -> None:
        self.signer = Signer(connection["key"].encode())
        self.sockets = JupyterSockets(context, connection, on_frames)
        self.attachments: dict[bytes, FrontEnd] = {}
        self._missed: list[tuple[str, Sequence[bytes]]] | None = None
        """What was shown, and said to absent front ends, since another supervisor died."""
        self._missed_bytes = 0
        self._topics: set[bytes] = set()
        self.why_ended = ""
        """What front ends see when the kernel ends."""

    @property
    def watched(self) -> bool:
        """True while someone has subscribed to what the session shows."""
        return bool(self._topics or self.attachments or self.sockets.holds or self._missed is not None)

    def take_over(self, listeners: tuple[int, ...]) -> None:
        """Continue for a supervisor that has died. Its front ends are about to return, each by itself."""
        self._missed = []
        self.sockets.loop.call_later(BACK_SECONDS, self._miss_no_more)
        self.sockets.take_over(listeners)

    def _miss_no_more(self) -> None:
        self._missed = None

    def attach(self, prefix: bytes, front_end: FrontEnd) -> None:
        """Add a front end that has come or returned; the names of its requests begin with ``prefix``."""
        self.attachments[prefix] = front_end
        for channel, parts in self._missed or ():
            if parts[0] == prefix:
                front_end.send(channel, parts[1:])
            elif channel == "iopub":
                front_end.send(channel, parts)

    def _keep(self, channel: str, parts: Sequence[bytes]) -> None:
        if self._missed is not None:
            self._missed.append((channel, parts))
            self._missed_bytes += sum(map(len, parts))
            if self._missed_bytes > MOST_MISSED_BYTES:
                self._miss_no_more()

    def send(self, channel: str, parts: Sequence[bytes]) -> None:
        """Send without waiting: on iopub to all, otherwise to the client that is named first, also at an attachment."""
        attachment = self.attachments.get(parts[0]) if parts else None
        if attachment is not None:
            attachment.send(channel, parts[1:])
            return
        if channel == "iopub":
            for attachment in list(self.attachments.values()):
                attachment.send(channel, parts)
        if channel == "iopub" or parts[0].startswith(ATTACHED):
            self._keep(channel, parts)
        self.sockets.send(channel, parts)

    def close(self, why: str = "") -> None:
        """Close the attachments and the sockets; ``why`` says why the kernel is gone."""
        why = why or self.why_ended or KERNEL_STOPPED
        for attachment in list(self.attachments.values()):
            attachment.close(why)
        self.sockets.close()

    def publish(
        self,
        request: CellRequest | Parent | None,
        kind: str,
        content: JsonObject,
        metadata: JsonObject | None = None,
        *,
        topic: str = "",
        buffers: Sequence[bytes] = (),
    ) -> None:
        """Show something about a request (None: about no request) on iopub, if anyone watches."""
        if self.watched:
            header = b"{}" if request is None else self._header(request)
            message = self.signer.parts(kind, header, content, metadata)
            self.send("iopub", [(topic or kind).encode(), *message, *buffers])

    def _header(self, request: CellRequest | Parent) -> bytes:
        if request.header is None:
            request.header = self.signer.header(request.kind)
        return request.header

    def stream(self, request: CellRequest | Parent | None, name: str, text: str) -> None:
        """Publish text on stdout or stderr."""
        self.publish(request, "stream", {"name": name, "text": text}, topic=f"stream.{name}")

    def welcome(self, parts: list[bytes]) -> None:
        """Greet a new subscriber of iopub (protocol 5.4), or record that a topic has no subscriber any more."""
        kind, topic = parts[0][:1], parts[0][1:]
        if kind == b"\x00":
            self._topics.discard(topic)
        if kind != b"\x01":
            return
        self._topics.add(topic)
        if self.sockets.holds:
            self.sockets.loop.call_later(SUBSCRIBED_SECONDS, self.sockets.release)
        content = {"subscription": topic.decode("utf-8", "replace")}
        message = self.signer.parts("iopub_welcome", b"{}", content)
        self.sockets.send("iopub", ([topic] if topic else []) + message)

    def answer_control(self, message: Received, content: JsonObject) -> None:
        """Reply to a control request."""
        kind = message.kind.replace("_request", "_reply")
        reply = self.signer.parts(kind, message.header, content)
        self.sockets.send("control", [*message.identities, *reply])

    def fail(self, request: CellRequest, told: CellReply) -> None:
        """Answer a request that no kernel will answer any more: error on iopub, reply, idle."""
        content: JsonObject = {"status": told.status}
        if told.status is CellStatus.ERROR:
            error = {"ename": told.ename, "evalue": told.evalue, "traceback": told.traceback}
            self.publish(request, "error", error)
            content |= error
        if request.direct is None:
            channel = "shell" if request.tag == worker_protocol.SHELL else "control"
            reply = self.signer.parts(request.kind.replace("_request", "_reply"), self._header(request), content)
            self.send(channel, [*request.identities, *reply])
        self.status(request, "idle")

    def status(self, request: CellRequest, state: str) -> None:
        """Publish that the kernel is busy with a request, or idle after it."""
        self.publish(request, "status", {"execution_state": state})
