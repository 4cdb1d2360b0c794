"""The five Jupyter sockets of one session, owned by the supervisor while the session lives.

The messaging protocol: https://jupyter-client.readthedocs.io/en/stable/messaging.html. Requests are ROUTER sockets,
iopub is an XPUB that greets every subscriber (``iopub_welcome``, protocol 5.4), so a client knows from when on it will
miss nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from rlm_ipc import framing
from rlm_ipc.errors import CallerError, machine_full
from rlm_ipc.messages import JsonObject
from rlm_kernel.channels import address, bound, listening

CHANNELS = ("shell", "control", "stdin", "iopub", "hb")
LINGER_MS = 500
HOLD_SECONDS = 2.0
REPLY_SECONDS = 5.0
AGAIN_SECONDS = 0.02
SUBSCRIBED_SECONDS = 0.02
"""How long after one subscription the other subscriptions of a returning client have arrived."""


class JupyterSockets:
    """The sockets. After `bind`, every request goes to ``on_frames(channel, parts)``.

    The keeper holds the listening descriptors, so they outlive the supervisor. Its connections do not: clients
    reconnect by themselves, and the next supervisor's messages wait for them for a while (`hold`).
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        connection: JsonObject,
        on_frames: Callable[[str, list[bytes]], None],
    ) -> None:
        self.context = context
        self.connection = connection
        self.on_frames = on_frames
        self.loop = asyncio.get_running_loop()
        self._sockets: dict[str, zmq.Socket[bytes]] = {}
        self._draining: set[str] = set()
        self.listeners: tuple[int, ...] = ()
        self._held: list[Sequence[bytes]] | None = None
        self._patient_until = 0.0

    @property
    def holds(self) -> bool:
        """Whether what is shown waits until someone subscribes again."""
        return self._held is not None

    def bind(self) -> None:
        """Raises CallerError if an address is taken, `MachineFull` if there is no room for the sockets."""
        try:
            for channel in CHANNELS:
                self.listeners += (listening(self.connection, channel),)
            self._bind_all()
        except OSError as error:  # some of zmq's errors are OSErrors, too
            self.close()
            taken = CallerError(f"the addresses of the connection cannot be bound: {error}")
            raise (machine_full(error) or taken) from error

    def _bind_all(self) -> None:
        for channel, listener in zip(CHANNELS, self.listeners, strict=True):
            self._bind(channel, listener)

    def take_over(self, listeners: tuple[int, ...]) -> None:
        """Listen where an earlier supervisor has listened, whose clients are about to return."""
        self.listeners = listeners
        self._held = []
        self._patient_until = self.loop.time() + REPLY_SECONDS
        self.loop.call_later(HOLD_SECONDS, self.release)
        self._bind_all()

    def release(self) -> None:
        """Show what was held for returning clients."""
        held, self._held = self._held or [], None
        for parts in held:
            self.send("iopub", parts)

    def _bind(self, channel: str, listener: int) -> None:
        sock = self._sockets[channel] = bound(self.context, self.connection, channel, listener)
        if self.holds and channel not in ("iopub", "hb"):
            sock.setsockopt(zmq.ROUTER_MANDATORY, 1)  # otherwise messages to a client that is not back yet are dropped
        sock.linger = LINGER_MS
        self.loop.add_reader(sock.FD, self._drain, channel)

    def send(self, channel: str, parts: Sequence[bytes]) -> None:
        """Send without waiting; to a client that is gone or does not read, the message is dropped."""
        sock = self._sockets.get(channel)
        if sock is None:
            return
        if channel == "iopub" and self._held is not None and not _is_welcome(parts):
            self._held.append(parts)
            return
        try:
            sock.send_multipart(parts, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno == errno.EHOSTUNREACH and self.loop.time() < self._patient_until:
                self.loop.call_later(AGAIN_SECONDS, self.send, channel, parts)
        # zmq's descriptor is edge-triggered: a request that arrived while we sent would not wake the loop again.
        if channel not in self._draining:
            self._draining.add(channel)
            self.loop.call_soon(self._drain, channel)

    def _drain(self, channel: str) -> None:
        self._draining.discard(channel)
        sock = self._sockets.get(channel)
        while sock is not None and not sock.closed and int(sock.EVENTS) & zmq.POLLIN:
            parts = sock.recv_multipart(zmq.NOBLOCK)
            if channel == "hb":
                self.send("hb", parts)
            else:
                self.on_frames(channel, parts)

    def close(self) -> None:
        """Close the sockets and remove the files of ipc addresses."""
        for channel, sock in self._sockets.items():
            with contextlib.suppress(ValueError, zmq.ZMQError):
                self.loop.remove_reader(sock.FD)
            sock.close(linger=LINGER_MS)
            if self.connection["transport"] == "ipc":
                with contextlib.suppress(OSError):
                    os.unlink(address(self.connection, channel).removeprefix("ipc://"))
        self._sockets.clear()
        framing.close_all(self.listeners)
        self.listeners = ()


def _is_welcome(parts: Sequence[bytes]) -> bool:
    return any(b'"iopub_welcome"' in part for part in parts[:4])
