"""``python -P -m rlm_kernel.door --door ID -f CONNECTION_FILE``: what a front end starts where it expects a kernel.

It binds the addresses that the front end has chosen, with the front end's own key, and relays raw messages to and from
the kernel host, which decides what comes of them (`host.doors`). It holds nothing of the session: however it ends,
only the door closes. It ends with the front end, with the session, and when the door is revoked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zmq

from rlm_kernel import rendezvous, tags, wire
from rlm_kernel.connection import Control
from rlm_kernel.displays import PICTURES
from rlm_kernel.doorfiles import key_file
from rlm_kernel.errors import CallerError, HostGone, KernelError, from_wire
from rlm_kernel.host.signing import DELIMITER, Signer
from rlm_kernel.inert import inert

CHANNELS = {"shell": tags.SHELL, "control": tags.CONTROL, "stdin": tags.STDIN, "iopub": tags.IOPUB}
SAFE_KINDS = frozenset(
    "clear_output comm_info_reply complete_reply error execute_input history_reply input_request interrupt_reply "
    "is_complete_reply kernel_info_reply shutdown_reply status stream".split()
)
DISPLAY_KINDS = frozenset(("display_data", "execute_result", "inspect_reply", "update_display_data"))
SAFE_PAYLOADS = frozenset(("ask_exit", "set_next_input"))
LOOK_AT_PARENT_MS = 1000
LINGER_MS = 1000
SCHEME = "hmac-sha256"
SUBSCRIBER_SECONDS = 2
"""How long requests wait for the front end's first subscriber of iopub: what is shown before, it would miss."""


def presentable(frames: list[bytes]) -> list[bytes] | None:
    """Return a message of the kernel from its delimiter on, with nothing in it that could act in a front end.

    None if it is malformed or of a kind that front ends of a session do not get.
    """
    try:
        kind, content = json.loads(frames[2])["msg_type"], json.loads(frames[5])
        if not isinstance(content, dict):
            return None
        if kind in SAFE_KINDS:
            return frames
        if kind == "execute_reply":
            payload = [item for item in content.get("payload") or () if item.get("source") in SAFE_PAYLOADS]
            expressions = content.get("user_expressions") or {}
            shown = {name: _shown(value) for name, value in expressions.items()}
            content = {**content, "payload": payload, "user_expressions": shown}
        elif kind in DISPLAY_KINDS:
            content = _shown(content)
        else:
            return None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return [*frames[:5], wire.json_frame(content)]


def _shown(content: dict[str, Any]) -> dict[str, Any]:
    """A content with ``data`` and ``metadata``; of the latter sizes of pictures are kept."""
    if "data" not in content:
        return content
    sizes = {kind: value for kind, value in (content.get("metadata") or {}).items() if kind in PICTURES}
    return {**content, "data": inert(content["data"]), "metadata": sizes}


class FrontEnd:
    """The five sockets that a front end expects of its kernel, with the key that it has given them.

    It has ``subscribed`` once it listens to what is shown.

    Raises CallerError for a connection that is signed in another way, and zmq.ZMQError if an address is taken.
    """

    def __init__(self, connection: dict[str, Any]) -> None:
        if connection.get("signature_scheme", SCHEME) != SCHEME:
            raise CallerError(f"a door's messages are signed with {SCHEME}; have the front end use that")
        self._signer = Signer(connection["key"].encode())
        self.subscribed = False
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.linger = LINGER_MS
        self.sockets: dict[str, zmq.Socket[bytes]] = {}
        for channel in (*CHANNELS, "hb"):
            sock = self.sockets[channel] = self._context.socket(zmq.XPUB if channel == "iopub" else zmq.ROUTER)
            sock.setsockopt(zmq.XPUB_VERBOSE if channel == "iopub" else zmq.ROUTER_HANDOVER, 1)
            separator = "-" if connection["transport"] == "ipc" else ":"
            address = f"{connection['ip']}{separator}{connection[channel + '_port']}"
            sock.bind(f"{connection['transport']}://{address}")
            if connection["transport"] == "ipc":
                os.chmod(address, 0o600)

    def send(self, tag: bytes, frames: Sequence[bytes]) -> None:
        """Send a message of the session; to a client that is gone or does not read it is dropped."""
        channel = next((channel for channel, known in CHANNELS.items() if known == tag), None)
        if channel is not None and DELIMITER in frames:
            at = list(frames).index(DELIMITER)
            message = presentable(list(frames[at:]))
            if message is not None:
                message[1] = self._signer.sign(message[2:6])
                self._send(channel, [*frames[:at], *message])

    def requests(self, channel: str) -> Iterator[list[bytes]]:
        """Yield the genuine requests that have come; answers a heartbeat and greets a subscriber by itself."""
        sock = self.sockets[channel]
        while int(sock.EVENTS) & zmq.POLLIN:
            frames = sock.recv_multipart()
            if channel == "hb":
                self._send("hb", frames)
            elif channel == "iopub":
                self._greet(frames[0])
            elif self._signer.read(frames) is not None:
                yield frames

    def _greet(self, frame: bytes) -> None:
        if frame[:1] == b"\x01":
            self.subscribed = True
            topic = frame[1:].decode("utf-8", "replace")
            welcome = self._signer.frames("iopub_welcome", b"{}", {"subscription": topic})
            self._send("iopub", ([frame[1:]] if frame[1:] else []) + welcome)

    def _send(self, channel: str, frames: Sequence[bytes]) -> None:
        try:
            self.sockets[channel].send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            return

    def close(self) -> None:
        """Send what waits, for a second at most."""
        self._context.destroy()


class Relay:
    """The loop between a front end and the host."""

    def __init__(self, front_end: FrontEnd, host: socket.socket, parser: wire.Parser) -> None:
        self._front_end, self._host, self._parser = front_end, host, parser
        self._wakes, wakes = socket.socketpair()
        wakes.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno())
        self._keep = wakes
        signal.signal(signal.SIGINT, lambda *_: None)

    def run(self) -> None:
        """Relay until either side ends."""
        poller, parent, until = zmq.Poller(), os.getppid(), time.monotonic() + SUBSCRIBER_SECONDS
        channels = {sock: channel for channel, sock in self._front_end.sockets.items()}
        requests = [sock for sock, channel in channels.items() if channel not in {"iopub", "hb"}]
        for source in {*channels, self._host, self._wakes}.difference(requests):
            poller.register(source, zmq.POLLIN)
        fd_of_host, fd_of_signals = self._host.fileno(), self._wakes.fileno()
        while os.getppid() == parent:
            if requests and (self._front_end.subscribed or time.monotonic() > until):
                for source in requests:
                    poller.register(source, zmq.POLLIN)
                requests = []
            for source, _ in poller.poll(SUBSCRIBER_SECONDS * 100 if requests else LOOK_AT_PARENT_MS):
                if source == fd_of_host:
                    if not self._from_host():
                        return
                elif source == fd_of_signals:
                    self._interrupted()
                else:
                    self._from_front_end(channels[source])

    def _from_front_end(self, channel: str) -> None:
        for frames in self._front_end.requests(channel):
            self._host.sendall(wire.pack(CHANNELS[channel], frames))

    def _from_host(self) -> bool:
        """Pass on what the host says; False at its end or goodbye."""
        alive = wire.receive(self._host, self._parser) > 0
        while (message := self._parser.next()) is not None:
            message.close()
            if message.tag == tags.GOODBYE:
                return False
            self._front_end.send(message.tag, message.frames)
        return alive

    def _interrupted(self) -> None:
        """A front end that knows no interrupt_request sends a signal instead."""
        self._wakes.recv(4096)
        self._host.sendall(wire.pack(tags.CONTROL, Signer(b"").frames("interrupt_request", b"{}", {})))


def enter(door: str) -> tuple[socket.socket, wire.Parser]:
    """Have the daemon open the door; returns the line to the host. Raises KernelError with what to do."""
    try:
        key = key_file(door).read_text().strip()
    except OSError:
        key = ""
    with Control("door", start=True, door=door, key=key) as control:
        opened = control.reply["answer"]
    sock = rendezvous.connect(rendezvous.runtime_dir() / "host.sock")
    if sock is None:
        raise HostGone("no kernel host is running")
    parser = wire.Parser(tags.MAX_CALL)
    _call(sock, parser, "hello", protocol=tags.PROTOCOL)
    _call(sock, parser, "door", **opened)
    return sock, parser


def _call(sock: socket.socket, parser: wire.Parser, op: str, **content: Any) -> None:
    """Call the host and wait; what the session shows meanwhile has nobody to see it yet."""
    sock.sendall(wire.pack(tags.CALL, (wire.json_frame({"id": 1, "op": op, **content}),)))
    while (message := parser.next()) is None or message.tag != tags.RESULT:
        if message is None and not wire.receive(sock, parser):
            raise HostGone("the kernel host hung up")
    answer = json.loads(message.frames[0])
    if not answer["ok"]:
        raise from_wire(answer)


def main() -> None:
    """Open the door and relay until one of the two sides ends."""
    options = argparse.ArgumentParser(prog="rlm_kernel.door", description="A front end's way into a live session.")
    options.add_argument("--door", required=True, help="which door of which session")
    # VS Code drops "-f FILE" of a kernelspec and appends "--f=FILE".
    options.add_argument("-f", "--f", dest="connection_file", type=Path, required=True)
    given, _ = options.parse_known_args()
    try:
        host, parser = enter(given.door)
        front_end = FrontEnd(json.loads(given.connection_file.read_text()))
    except (KernelError, ValueError, OSError, rendezvous.RendezvousError, zmq.ZMQError) as error:
        sys.exit(f"rlm-kernel: {error}")
    try:
        Relay(front_end, host, parser).run()
    except (OSError, KernelError) as error:
        sys.exit(f"rlm-kernel: the session's host has gone: {error}")
    finally:
        front_end.close()


if __name__ == "__main__":
    main()
