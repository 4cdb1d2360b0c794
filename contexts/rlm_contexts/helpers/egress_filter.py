"""Restricts what a process may connect to, whatever servers tell the libraries in it."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Sequence
from typing import Any

_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""Addresses through which an IPv6-only network reaches those of IPv4."""
_CONNECTING = ("socket.connect", "socket.sendto", "socket.sendmsg")


class EgressFilter:
    """The exit of this process: once it is closed, only named hosts can be reached.

    It is for libraries that follow their servers, not for code that tries to get past it: native code could.

    Attributes:
        hosts: the names; one that begins with a dot stands for all below it.
        port: the only port that may be connected to; None: any.
        refused: the last host, or host and port, that was not one of them.
    """

    def __init__(self, hosts: Sequence[str], port: int | None = None) -> None:
        self.hosts, self.port = hosts, port
        self.refused: str | None = None
        self._addresses: set[str] = set()
        self._resolve = socket.getaddrinfo

    def close(self) -> None:
        """Restrict everything in this process to the hosts, for good."""
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
        if event not in _CONNECTING or args[1] is None:  # None: to where it is already connected
            return
        name = str(args[1][0]) if isinstance(args[1], tuple) else str(args[1])
        if name not in self._addresses and name not in self.hosts:
            raise self._refusal(name)
        if self.port is not None and (not isinstance(args[1], tuple) or args[1][1] != self.port):
            raise self._refusal(f"{name}:{args[1][1]}" if isinstance(args[1], tuple) else name)

    def _refusal(self, name: str) -> OSError:
        self.refused = name[:200]
        return PermissionError(errno.EACCES, f"the host {self.refused} may not be contacted")


class AddressFilter:
    """Where a process may connect after a server has redirected it: public addresses, and kinds it has used before.

    It checks addresses as they are connected to, so names that resolve differently each time do not matter.

    Attributes:
        refused: the last address that was neither.
    """

    def __init__(self) -> None:
        self.refused: str | None = None
        self._known = {"public"}
        self._is_held = False
        sys.addaudithook(self._connecting)

    def hold(self) -> None:
        """Allow this process to connect only to kinds of addresses that it has used so far, for good."""
        self._is_held = True

    def _connecting(self, event: str, args: tuple[Any, ...]) -> None:
        if event not in _CONNECTING or args[1] is None:
            return
        name = str(args[1][0]) if isinstance(args[1], tuple) else str(args[1])
        kind = kind_of(name)
        if not self._is_held:
            self._known.add(kind)
        elif kind not in self._known:
            self.refused = name[:200]
            raise PermissionError(errno.EACCES, f"the address {self.refused} may not be contacted")


def kind_of(address: str) -> str:
    """Return the kind of an address: ``public``, ``private``, ``loopback``, ``link-local``, or ``other``."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "other"
    if isinstance(ip, ipaddress.IPv6Address):
        translated = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _TRANSLATED else None
        ip = ip.ipv4_mapped or ip.sixtofour or translated or ip
    if isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local:
        return "private"
    if ip.is_loopback or ip.is_link_local:
        return "loopback" if ip.is_loopback else "link-local"
    if ip.is_multicast or ip.is_unspecified or ip.is_reserved:
        return "other"
    return "public" if ip.is_global else "private"
