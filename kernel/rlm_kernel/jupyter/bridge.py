"""The bridge: what a front end starts where it expects a kernel (``--attachment ID -f CONNECTION_FILE``).

It binds the addresses that the front end has chosen, with the front end's own key, and relays raw messages to and from
the supervisor, which handles them (`supervisor.attachments`). It holds nothing of the session: however it ends, only
the attachment closes. It ends with the front end. When the session ends, or the attachment is revoked, it stays and
says so until the front end ends (`ended`).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq

from rlm_ipc import discovery, framing
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.attachment_requests import EnterAttachment
from rlm_ipc.daemon_connection import ask
from rlm_ipc.displays import PICTURES
from rlm_ipc.errors import CallerError, KernelError, SupervisorGone
from rlm_ipc.jupyter_wire import DELIMITER, Signer
from rlm_ipc.messages import Json
from rlm_ipc.supervisor_wire import GOODBYE
from rlm_ipc.worker_protocol import CHANNELS, CONTROL, TAGS
from rlm_kernel.blocking_client import BlockingClient, clients_after
from rlm_kernel.channels import bound
from rlm_kernel.jupyter.ended import AskedCells, EndedSession
from rlm_kernel.jupyter.kernelspecs import key_file
from rlm_kernel.jupyter.sanitizer import sanitized

SAFE_KINDS = frozenset(
    "clear_output comm_info_reply complete_reply error execute_input history_reply input_request interrupt_reply "
    "is_complete_reply kernel_info_reply shutdown_reply status stream".split()
)
DISPLAY_KINDS = frozenset(("display_data", "execute_result", "inspect_reply", "update_display_data"))
SAFE_PAYLOADS = frozenset(("ask_exit", "set_next_input"))
LOOK_AT_PARENT_MS = 1000
LINGER_MS = 1000
MOST_REPEATED = 16_384
"""How many of the latest messages are recognized when they are repeated."""
SCHEME = "hmac-sha256"
SUBSCRIBER_SECONDS = 2
"""How long requests wait for the front end's first subscriber of iopub: it would miss anything shown earlier."""


def presentable(parts: list[bytes]) -> list[bytes] | None:
    """Return a message of the kernel from its delimiter on, with nothing in it that could act in a front end.

    None if it is malformed or of a kind that front ends of a session do not get.
    """
    try:
        kind, content = json.loads(parts[2])["msg_type"], json.loads(parts[5])
        if not isinstance(content, dict):
            return None
        if kind in SAFE_KINDS:
            return parts
        if kind == "execute_reply":
            payload = [_done(item) for item in content.get("payload") or () if item.get("source") in SAFE_PAYLOADS]
            expressions = content.get("user_expressions") or {}
            results = {name: _shown(value) for name, value in expressions.items()}
            content = {**content, "payload": payload, "user_expressions": results}
        elif kind in DISPLAY_KINDS:
            content = _shown(content)
        else:
            return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return [*parts[:5], framing.json_part(content)]


def _done(item: Json) -> Json:
    """Return what a front end is told to do.

    "Leave" only ends its own kernel, this bridge: the session continues.
    """
    return {**item, "keepkernel": False} if item["source"] == "ask_exit" else item


def _shown(content: dict[str, Json]) -> dict[str, Json]:
    """Return a content with ``data`` and ``metadata``; the latter keeps only sizes of pictures."""
    if "data" not in content:
        return content
    sizes = {kind: value for kind, value in (content.get("metadata") or {}).items() if kind in PICTURES}
    return {**content, "data": sanitized(content["data"]), "metadata": sizes}


class FrontEnd:
    """The five sockets that a front end expects of its kernel, with the key that it has given them.

    It has ``subscribed`` once it listens to what is shown.

    Raises CallerError for a connection with another signature scheme, and zmq.ZMQError if an address is taken.
    """

    def __init__(self, connection: dict[str, Json]) -> None:
        if connection.get("signature_scheme", SCHEME) != SCHEME:
            raise CallerError(
                f"an attachment's messages must be signed with {SCHEME}; configure the front end to use it"
            )
        self.signer = Signer(connection["key"].encode())
        self.subscribed = False
        self.asked = AskedCells()
        self._sent: dict[int, None] = {}
        """The headers of the latest messages, hashed."""
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.linger = LINGER_MS
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        for channel in (*TAGS, "hb"):
            self.sockets[channel] = bound(self._context, connection, channel)

    def send(self, tag: bytes, parts: Sequence[bytes]) -> None:
        """Send a message of the session; it is dropped if the client is gone or does not read."""
        channel = CHANNELS.get(tag)
        if channel is not None and DELIMITER in parts:
            at = list(parts).index(DELIMITER)
            if self._is_repeated(parts[at:]):
                return
            message = presentable(list(parts[at:]))
            if channel == "shell":
                self.asked.answered(parts)
            if message is not None:
                message[1] = self.signer.sign(message[2:6])
                self.put(channel, [*parts[:at], *message])

    def _is_repeated(self, parts: Sequence[bytes]) -> bool:
        """Whether a message is a repetition: the next supervisor sends again what the previous one sent as it died.

        Jupyter clients raise an error for a repeated message.
        """
        header = hash(parts[2] if len(parts) > 2 else b"")
        if header in self._sent:
            return True
        self._sent[header] = None
        if len(self._sent) > MOST_REPEATED:
            del self._sent[next(iter(self._sent))]
        return False

    def requests(self, channel: str) -> Iterator[list[bytes]]:
        """Yield the genuine requests that have arrived; heartbeats and new subscribers are answered here."""
        sock = self.sockets[channel]
        while int(sock.EVENTS) & zmq.POLLIN:
            parts = sock.recv_multipart()
            if channel == "hb":
                self.put("hb", parts)
            elif channel == "iopub":
                self._greet(parts[0])
            elif self.signer.read(parts) is not None:
                yield parts

    def _greet(self, part: bytes) -> None:
        if part[:1] == b"\x01":
            self.subscribed = True
            topic = part[1:].decode("utf-8", "replace")
            welcome = self.signer.parts("iopub_welcome", b"{}", {"subscription": topic})
            self.put("iopub", ([part[1:]] if part[1:] else []) + welcome)

    def put(self, channel: str, parts: Sequence[bytes]) -> None:
        """Send a message of our own; it is dropped if the client does not read."""
        try:
            self.sockets[channel].send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def close(self) -> None:
        """Send what is waiting, for a second at most."""
        self._context.destroy()


class Bridge:
    """The loop between a front end and the supervisor."""

    def __init__(self, front_end: FrontEnd, line: protocol.Attach, client: BlockingClient) -> None:
        self._front_end, self._line = front_end, line
        self._supervisor, self._parser, self._pid = client.socket, client.parser, client.welcome.pid
        self._wakes, wakes = socket.socketpair()
        wakes.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno())
        self._keep, self._ended = wakes, ""
        signal.signal(signal.SIGINT, lambda *_: None)

    def run(self) -> str:
        """Relay until the front end or the kernel ends. Return why the kernel has ended, empty if it has not."""
        poller, parent, until = zmq.Poller(), os.getppid(), time.monotonic() + SUBSCRIBER_SECONDS
        channels = {sock: channel for channel, sock in self._front_end.sockets.items()}
        requests = [sock for sock, channel in channels.items() if channel not in {"iopub", "hb"}]
        for source in {*channels, self._supervisor, self._wakes}.difference(requests):
            poller.register(source, zmq.POLLIN)
        fd_of_supervisor, fd_of_signals = self._supervisor.fileno(), self._wakes.fileno()
        while os.getppid() == parent:
            if requests and (self._front_end.subscribed or time.monotonic() > until):
                for source in requests:
                    poller.register(source, zmq.POLLIN)
                requests = []
            for source, _ in poller.poll(SUBSCRIBER_SECONDS * 100 if requests else LOOK_AT_PARENT_MS):
                if source == fd_of_supervisor:
                    served_by = self._supervisor
                    if not self._from_supervisor():
                        return self._ended
                    if self._supervisor is not served_by:  # another one has taken over
                        poller.unregister(served_by)
                        poller.register(self._supervisor, zmq.POLLIN)
                        fd_of_supervisor = self._supervisor.fileno()
                elif source == fd_of_signals:
                    self._interrupted()
                else:
                    self._from_front_end(channels[source])
        return ""

    def _from_front_end(self, channel: str) -> None:
        for parts in self._front_end.requests(channel):
            if channel == "shell":
                self._front_end.asked.asked(parts)
            self._say(framing.pack(TAGS[channel], parts))

    def _from_supervisor(self) -> bool:
        """Pass on what the supervisor says. Return False when it says goodbye, or there is none any more."""
        try:
            alive = framing.receive(self._supervisor, self._parser) > 0
        except ConnectionError:
            alive = False
        # What another supervisor says at once is read together with its answer, and nothing wakes this process for it.
        return self._pass_on() and (alive or (self._connect_again() and self._pass_on()))

    def _pass_on(self) -> bool:
        """Pass on what has been read. Return False at a goodbye."""
        while (message := self._parser.next()) is not None:
            message.close()
            if message.tag == GOODBYE:
                self._ended = message.parts[0].decode() if message.parts else ""
                return False
            self._front_end.send(message.tag, message.parts)
        return True

    def _connect_again(self) -> bool:
        try:
            client = attach(self._line, self._pid)
        except (KernelError, OSError):  # there is none, or the session has ended
            self._ended = (
                "this front end has lost its session: the kernel is gone, or the attachment was revoked or closed. "
                "Restart the kernel to enter the session again, if `rlm-kernel sessions` lists it"
            )
            return False
        before = self._supervisor
        self._supervisor, self._parser, self._pid = client.socket, client.parser, client.welcome.pid
        before.close()
        return True

    def _say(self, message: bytes) -> None:
        with suppress(ConnectionError):  # it has died: what is said meanwhile is lost, and its end is read next
            self._supervisor.sendall(message)

    def _interrupted(self) -> None:
        """Handle a signal, which front ends send that do not know interrupt_request."""
        self._wakes.recv(4096)
        self._say(framing.pack(CONTROL, Signer(b"").parts("interrupt_request", b"{}", {})))


def enter(attachment: str) -> protocol.Attach:
    """Have the daemon open the attachment. Return the request for the supervisor.

    Raises KernelError with what to do.
    """
    try:
        key = key_file(attachment).read_text().strip()
    except OSError:
        key = ""
    opened = ask(EnterAttachment(attachment, key), start=True)
    line = secrets.token_hex(8)
    return protocol.Attach(opened.kernel_id, opened.attachment, line, opened.watches, opened.owned)


def attach(line: protocol.Attach, before: int = 0) -> BlockingClient:
    """Turn a connection to the supervisor into a line.

    Not to the one ``before``: if that hangs up, it has its reason.
    """
    for client in clients_after(before, discovery.runtime_dir() / "supervisor.sock"):
        with suppress(SupervisorGone):  # it has just died: another one takes over
            client.call(protocol.ATTACH, line)
            return client
    raise SupervisorGone("no supervisor is running")


def main() -> None:
    """Open the attachment and relay until one of the two sides ends."""
    options = argparse.ArgumentParser(
        prog="rlm_kernel.jupyter.bridge", description="A front end's way into a live session."
    )
    options.add_argument("--attachment", required=True, help="which attachment of which session")
    # VS Code drops "-f FILE" of a kernelspec and appends "--f=FILE".
    options.add_argument("-f", "--f", dest="connection_file", type=Path, required=True)
    arguments, _ = options.parse_known_args()
    why, entered = "", None
    try:
        line = enter(arguments.attachment)
        entered = line, attach(line)
    except (KernelError, OSError, discovery.DiscoveryError) as error:
        sys.stderr.write(f"rlm-kernel: {error}\n")
        why = f"this session cannot be used here: {error}"
    try:
        front_end = FrontEnd(json.loads(arguments.connection_file.read_text()))
    except (KernelError, ValueError, OSError, zmq.ZMQError) as error:
        sys.exit(f"rlm-kernel: {error}")
    try:
        if entered is not None:
            why = Bridge(front_end, *entered).run()
        if why:
            EndedSession(front_end, why).serve(front_end.asked)
    except (OSError, KernelError) as error:
        sys.exit(f"rlm-kernel: the session's supervisor has gone: {error}")
    finally:
        front_end.close()


if __name__ == "__main__":
    main()
