"""Holds what a process may connect to, whatever servers tell the libraries in it."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["Gate"]

_CONNECTING = ("socket.connect", "socket.sendto", "socket.sendmsg")


class Gate:
    """The way out of this process: once it is closed, only named hosts can be reached.

    It is for libraries that follow their servers, not for code that wants to get past it: native code could.

    Attributes:
        hosts: those names; one that begins with a dot stands for all below it.
        port: the one that may be connected to; None stands for any.
        refused: the last host, or host and port, that was not one of them.
    """

    def __init__(self, hosts: Sequence[str], port: int | None = None) -> None:
        self.hosts, self.port = hosts, port
        self.refused: str | None = None
        self._addresses: set[str] = set()
        self._resolve = socket.getaddrinfo

    def close(self) -> None:
        """Hold everything in this process to the hosts, for good."""
        socket.getaddrinfo = self._resolved
        sys.addaudithook(self._connecting)

    def _resolved(self, host: Any, *args: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        plain = name.lower().rstrip(".")
        below = any(known.startswith(".") and plain.endswith(known) for known in self.hosts)
        if not (below or plain in self.hosts or plain in self._addresses):
            raise self._refusal(name)
        found = self._resolve(host, *args, **named)
        self._addresses.update(str(entry[4][0]) for entry in found)
        return found

    def _connecting(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _CONNECTING or args[1] is None:  # None: to where it is connected already
            return
        name = str(args[1][0]) if isinstance(args[1], tuple) else str(args[1])
        if name not in self._addresses and name not in self.hosts:
            raise self._refusal(name)
        if self.port is not None and (not isinstance(args[1], tuple) or args[1][1] != self.port):
            raise self._refusal(f"{name}:{args[1][1]}" if isinstance(args[1], tuple) else name)

    def _refusal(self, name: str) -> OSError:
        self.refused = name[:200]
        return PermissionError(errno.EACCES, f"the host {self.refused} may not be asked")
