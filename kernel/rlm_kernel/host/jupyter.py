"""What the host itself says to Jupyter clients on behalf of a session, signed with the session's key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import zmq

from rlm_kernel import tags
from rlm_kernel.host.request import Request
from rlm_kernel.host.signing import Received, Signer
from rlm_kernel.host.sockets import JupyterSockets

if TYPE_CHECKING:
    from rlm_kernel.host.doors import Door


class Front:
    """The sockets of a session, its doors (by the prefix of their requests), and what the host itself says there."""

    def __init__(self, context: zmq.Context[Any], connection: dict[str, Any], on_frames: Any) -> None:
        self.signer = Signer(connection["key"].encode())
        self.sockets = JupyterSockets(context, connection, on_frames)
        self.doors: dict[bytes, Door] = {}
        self._topics: set[bytes] = set()

    @property
    def watched(self) -> bool:
        """True while somebody has subscribed to what the session shows."""
        return bool(self._topics or self.doors)

    def send(self, channel: str, frames: Sequence[bytes]) -> None:
        """Send without waiting: to everybody on iopub, else to the client whose name comes first, also at a door."""
        door = self.doors.get(frames[0]) if frames else None
        if door is not None:
            door.send(channel, frames[1:])
            return
        if channel == "iopub":
            for door in list(self.doors.values()):
                door.send(channel, frames)
        self.sockets.send(channel, frames)

    def close(self) -> None:
        """Close the doors and the sockets."""
        for door in list(self.doors.values()):
            door.close()
        self.sockets.close()

    def publish(
        self,
        request: Request | None,
        kind: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
        *,
        topic: str = "",
        buffers: Sequence[bytes] = (),
    ) -> None:
        """Show something of a request (None: of no request) on iopub, if anybody watches."""
        if self.watched:
            header = b"{}" if request is None else self._header(request)
            message = self.signer.frames(kind, header, content, metadata)
            self.send("iopub", [(topic or kind).encode(), *message, *buffers])

    def _header(self, request: Request) -> bytes:
        if request.header is None:
            request.header = self.signer.header(request.kind)
        return request.header

    def stream(self, request: Request | None, name: str, text: str) -> None:
        """Publish text on stdout or stderr."""
        self.publish(request, "stream", {"name": name, "text": text}, topic=f"stream.{name}")

    def welcome(self, frames: list[bytes]) -> None:
        """Greet a new subscriber of iopub (protocol 5.4), or take note that a topic has no subscriber any more."""
        kind, topic = frames[0][:1], frames[0][1:]
        if kind == b"\x00":
            self._topics.discard(topic)
        if kind != b"\x01":
            return
        self._topics.add(topic)
        content = {"subscription": topic.decode("utf-8", "replace")}
        message = self.signer.frames("iopub_welcome", b"{}", content)
        self.sockets.send("iopub", ([topic] if topic else []) + message)

    def answer_control(self, message: Received, content: dict[str, Any]) -> None:
        """Reply to a control request."""
        kind = message.kind.replace("_request", "_reply")
        reply = self.signer.frames(kind, message.header, content)
        self.sockets.send("control", [*message.identities, *reply])

    def fail(self, request: Request, content: dict[str, Any]) -> None:
        """Answer a request that no kernel will answer any more: error on iopub, reply, idle."""
        if content["status"] == "error":
            self.publish(request, "error", {key: content[key] for key in ("ename", "evalue", "traceback")})
        if request.direct is None:
            channel = "shell" if request.tag == tags.SHELL else "control"
            reply = self.signer.frames(request.kind.replace("_request", "_reply"), self._header(request), content)
            self.send(channel, [*request.identities, *reply])
        self.status(request, "idle")

    def status(self, request: Request, state: str) -> None:
        """Publish that the kernel is busy with a request, or idle after it."""
        self.publish(request, "status", {"execution_state": state})
