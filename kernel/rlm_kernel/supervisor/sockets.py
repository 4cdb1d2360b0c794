"""The five Jupyter sockets of one session, owned by the supervisor for as long as the session lives.

The messaging protocol: https://jupyter-client.readthedocs.io/en/stable/messaging.html. Requests are ROUTER sockets,
iopub is an XPUB that greets every subscriber (``iopub_welcome``, protocol 5.4), so a client knows when it will miss
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from rlm_ipc.errors import CallerError
from rlm_ipc.messages import JsonObject
from rlm_kernel.channels import address, bound
from rlm_kernel.supervisor.capacity import full_instead

CHANNELS = ("shell", "control", "stdin", "iopub", "hb")
LINGER_MS = 500


class JupyterSockets:
    """The sockets. After `bind`, every request goes to ``on_frames(channel, parts)``."""

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

    def bind(self) -> None:
        """Raises CallerError if an address is taken, `MachineFull` if there is no room for the sockets."""
        try:
            for channel in CHANNELS:
                self._bind(channel)
        except zmq.ZMQError as error:
            self.close()
            full = full_instead(error)
            taken = CallerError(f"the addresses of the connection cannot be bound: {error}")
            raise (taken if full is error else full) from error

    def _bind(self, channel: str) -> None:
        sock = self._sockets[channel] = bound(self.context, self.connection, channel)
        sock.linger = LINGER_MS
        self.loop.add_reader(sock.FD, self._drain, channel)

    def send(self, channel: str, parts: Sequence[bytes]) -> None:
        """Send without waiting; to a client that is gone or does not read, the message is dropped."""
        sock = self._sockets.get(channel)
        if sock is None:
            return
        with contextlib.suppress(zmq.ZMQError):
            sock.send_multipart(parts, zmq.NOBLOCK)
        # zmq's descriptor is edge-triggered: a request that came in while we sent would not wake the loop again.
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
