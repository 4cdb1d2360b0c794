"""What the host itself says to Jupyter clients on behalf of a session, signed with the session's key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq
from jupyter_client.session import Session

from rlm_kernel.host.request import DELIMITER, Request
from rlm_kernel.host.sockets import JupyterSockets


class Front:
    """The sockets of a session and the messages that the host makes for them."""

    def __init__(self, context: zmq.Context[Any], connection: dict[str, Any], on_frames: Any) -> None:
        self.signer = Session(key=connection["key"].encode(), check_pid=False)
        self.sockets = JupyterSockets(context, connection, on_frames)

    def message(self, kind: str, parent_header: bytes, content: dict[str, Any]) -> list[bytes]:
        """The frames of a message that answers the request with ``parent_header``."""
        pack = self.signer.pack
        parts = [pack(self.signer.msg_header(kind)), parent_header, b"{}", pack(content)]
        return [DELIMITER, self.signer.sign(parts), *parts]

    def send(
        self,
        channel: str,
        kind: str,
        parent_header: bytes,
        content: dict[str, Any],
        prefix: Sequence[bytes] = (),
    ) -> None:
        """Send a message of ours; ``prefix`` is the client's identity, or the topic on iopub."""
        self.sockets.send(channel, [*prefix, *self.message(kind, parent_header, content)])

    def stream(self, parent_header: bytes, name: str, text: str) -> None:
        """Publish text on stdout or stderr."""
        self.send("iopub", "stream", parent_header, {"name": name, "text": text}, [f"stream.{name}".encode()])

    def welcome(self, frames: list[bytes]) -> None:
        """Greet a new subscriber of iopub (protocol 5.4)."""
        if frames[0][:1] != b"\x01":
            return
        topic = frames[0][1:]
        content = {"subscription": topic.decode("utf-8", "replace")}
        message = self.signer.serialize(self.signer.msg("iopub_welcome", content))
        self.sockets.send("iopub", ([topic] if topic else []) + message)

    def execute_request(self, code: str, store_history: bool) -> list[bytes]:
        """The frames of a cell that a caller of the host asks to run."""
        content = {
            "code": code,
            "silent": False,
            "store_history": store_history,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        return [b"rlm", *self.message("execute_request", b"{}", content)]

    def read_control(self, frames: list[bytes]) -> tuple[list[bytes], dict[str, Any]] | None:
        """A verified message of the control channel with its client's identity; None for a forged one."""
        try:
            identities, rest = self.signer.feed_identities(frames)
            return identities, self.signer.deserialize(rest)
        except Exception:
            return None

    def answer_control(self, identities: list[bytes], message: dict[str, Any], content: dict[str, Any]) -> None:
        """Reply to a control request."""
        kind = message["msg_type"].replace("_request", "_reply")
        self.sockets.send("control", self.signer.serialize(self.signer.msg(kind, content, parent=message), identities))

    def fail(self, request: Request, content: dict[str, Any]) -> None:
        """Answer a request that no kernel will answer any more: error on iopub, reply, idle."""
        header, kind = request.header, request.kind
        if content["status"] == "error":
            shown = {key: content[key] for key in ("ename", "evalue", "traceback")}
            self.send("iopub", "error", header, shown, [b"error"])
        channel = "shell" if request.tag == b"s" else "control"
        self.send(channel, kind.replace("_request", "_reply"), header, content, request.identities)
        self.send("iopub", "status", header, {"execution_state": "idle"}, [b"status"])
