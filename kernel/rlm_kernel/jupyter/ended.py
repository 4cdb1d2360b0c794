"""What a front end shows when its session has ended, instead of saying that the kernel appears to have died.

Jupyter has no message for it. A kernel process that ends is restarted, again and again, and then called dead. So the
bridge stays, answers every cell with an error that says who ended the session, and ends when it is shut down.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Protocol

import zmq

from rlm_ipc.jupyter_wire import DELIMITER, Signer, object_in
from rlm_ipc.messages import Json
from rlm_ipc.version import VERSION

NAME = "KernelGone"
LOOK_AT_PARENT_MS = 1000
_LANGUAGE = {"name": "python", "version": "3", "mimetype": "text/x-python", "file_extension": ".py"}
_INFO = {
    "status": "ok",
    "protocol_version": "5.4",
    "implementation": "rlm-kernel",
    "implementation_version": VERSION,
    "language_info": _LANGUAGE,
}


class Front(Protocol):
    """The front end's sockets; see `bridge.FrontEnd`."""

    sockets: dict[str, zmq.Socket[bytes]]
    signer: Signer

    def requests(self, channel: str) -> Iterator[list[bytes]]:
        """Return the genuine requests that have arrived."""
        ...

    def put(self, channel: str, parts: Sequence[bytes]) -> None:
        """Send a message."""
        ...


class AskedCells:
    """Remembers which cells a front end has requested, by the identity that their answers will name."""

    def __init__(self) -> None:
        self.latest: list[bytes] | None = None
        """The latest request."""
        self._waiting: dict[str, list[bytes]] = {}

    def asked(self, parts: list[bytes]) -> None:
        """Record a request."""
        header = object_in(parts, 2)
        if header.get("msg_type") == "execute_request":
            self.latest = self._waiting[str(header.get("msg_id"))] = parts

    def answered(self, parts: Sequence[bytes]) -> None:
        """Record a reply."""
        if self._waiting:
            self._waiting.pop(str(object_in(parts, 3).get("msg_id")), None)

    @property
    def waiting(self) -> list[list[bytes]]:
        """Return the unanswered requests, oldest first."""
        return list(self._waiting.values())


class EndedSession:
    """Stands in for a kernel that is gone, and says ``why``."""

    def __init__(self, front: Front, why: str) -> None:
        self._front, self._why = front, why

    def serve(self, asked: AskedCells) -> None:
        """Inform the front end until it shuts its kernel down or ends."""
        for request in asked.waiting:
            self._refuse("shell", request)
        if asked.latest is not None and not asked.waiting:  # below the cell that was run last
            text = {"name": "stderr", "text": f"{self._why}\n"}
            self._publish("stream", _part(asked.latest, 2), text)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        poller, parent = zmq.Poller(), os.getppid()
        channels = {sock: channel for channel, sock in self._front.sockets.items()}
        for sock in channels:
            poller.register(sock, zmq.POLLIN)
        while os.getppid() == parent:
            for sock, _ in poller.poll(LOOK_AT_PARENT_MS):
                channel = channels[sock]
                for request in self._front.requests(channel):
                    if not self._answered(channel, request):
                        return

    def _answered(self, channel: str, request: list[bytes]) -> bool:
        """Answer a request. Return False if it asked to shut down."""
        kind = object_in(request, 2).get("msg_type")
        if channel == "stdin":
            return True
        if kind == "kernel_info_request":
            self._reply(channel, request, {**_INFO, "banner": self._why})
        elif kind in {"shutdown_request", "interrupt_request"}:
            self._reply(channel, request, {"status": "ok", "restart": bool(object_in(request, 5).get("restart"))})
        else:
            self._refuse(channel, request)
        return bool(kind != "shutdown_request")

    def _refuse(self, channel: str, request: list[bytes]) -> None:
        error = {"ename": NAME, "evalue": self._why, "traceback": [f"{NAME}: {self._why}"]}
        content: Json = {"status": "error", **error}
        if object_in(request, 2).get("msg_type") == "execute_request":
            self._reply(channel, request, {**content, "execution_count": 0, "payload": []}, error)
        else:
            self._reply(channel, request, content)

    def _reply(self, channel: str, request: list[bytes], content: Json, shown: Json = None) -> None:
        header = _part(request, 2)
        self._publish("status", header, {"execution_state": "busy"})
        if shown is not None:
            self._publish("error", header, shown)
        kind = str(object_in(request, 2).get("msg_type")).replace("_request", "_reply")
        identities = request[: request.index(DELIMITER)]
        self._front.put(channel, [*identities, *self._front.signer.parts(kind, header, content)])
        self._publish("status", header, {"execution_state": "idle"})

    def _publish(self, kind: str, header: bytes, content: Json) -> None:
        self._front.put("iopub", [kind.encode(), *self._front.signer.parts(kind, header, content)])


def _part(parts: Sequence[bytes], at: int) -> bytes:
    return parts[list(parts).index(DELIMITER) + at] if DELIMITER in parts else b"{}"
