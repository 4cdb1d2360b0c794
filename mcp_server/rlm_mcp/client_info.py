"""Who is calling: what a client's handshake line says, and the context variable that carries it to the tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import field
from types import MappingProxyType

from rlm_ipc.json_lines import HANDSHAKE_ENVIRONMENT, MADE_BY, PROTOCOL, TERMINAL
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json
from rlm_mcp.errors import HandshakeRefused

_NOTHING: Mapping[str, str] = MappingProxyType({})
_LONGEST_VALUE = 4096
LONGEST_REQUEST = 16 * 1024 * 1024
"""Bytes of a request that may follow a handshake line."""


@dataclass(frozen=True)
class ClientInfo:
    """What the daemon knows of a client process.

    ``cwd`` is the client's working directory (empty: not known, as over HTTP), ``env`` at most the variables
    of :data:`rlm_ipc.json_lines.HANDSHAKE_ENVIRONMENT`, ``pid`` its process id (-1: not known). All of it is the
    client's claim, checked for shape only: it says which session to use, never what is allowed. ``agent`` is which of
    its agents makes a call (empty: the client does not say), ``lock`` the file that it holds locked while it lives,
    or else what tells it from other clients of its process.

    ``connection`` and ``peer`` are no claims: which connection it is (0: none of our socket's), and the process there
    (-1: not known). ``admitted`` are the sessions that this connection may use, each by its key and the hash of the
    policy that it had. A new connection is compared anew, because the client's policy may be another one by then.
    """

    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    pid: int = -1
    agent: str = ""
    lock: str = ""
    connection: int = 0
    peer: int = -1
    admitted: set[tuple[int, str]] = field(default_factory=set, compare=False, repr=False)

    @property
    def is_terminal(self) -> bool:
        """Whether a person makes the call, by a command in a terminal."""
        return self.env.get(MADE_BY) == TERMINAL

    @property
    def author(self) -> str:
        """The author's name in rows."""
        return f"client {self.pid}" if self.pid >= 0 else "client"


@dataclass(frozen=True)
class Handshake:
    """The handshake of a connection: the client, its role and its request.

    ``request`` is not read yet. ``size`` is None when it stood in the line, else the bytes of it that follow the line.
    """

    client: ClientInfo
    role: str
    request: Json
    size: int | None


_UNKNOWN = ClientInfo()
current_handshake: ContextVar[ClientInfo] = ContextVar("current_handshake", default=_UNKNOWN)
"""The handshake of the connection that the running handler serves."""
HUNG_UP = "rlm_hung_up"
"""The key, in the scope of an HTTP request, of an event that is set when its client has disconnected."""


def parse_handshake(line: bytes) -> Handshake:
    """Parse a handshake line; raises :class:`HandshakeRefused` for anything else.

    Unusable claims of a client are dropped, so that a front in a folder with an odd name is served, too.
    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or "rlm" not in message:
        raise HandshakeRefused("this socket is for rlm-kernel's own front; connect with the command: rlm-kernel mcp")
    if message["rlm"] != PROTOCOL:
        raise HandshakeRefused(
            f"the daemon speaks protocol {PROTOCOL}, the client {message['rlm']!r}; "
            "run `rlm-kernel daemon stop` and use one version of rlm-kernel"
        )
    pid, role, size = message.get("pid"), message.get("role", "mcp"), message.get("bytes")
    if not isinstance(role, str):
        raise HandshakeRefused("the role of a connection must be a text; use one version of rlm-kernel")
    if size is not None and (type(size) is not int or not 0 < size <= LONGEST_REQUEST):
        raise HandshakeRefused(f"a request may have 1 to {LONGEST_REQUEST:,} bytes; write longer content to a file")
    client = ClientInfo(
        cwd=_clean(message.get("cwd")),
        env=_environment(message.get("env")),
        pid=pid if isinstance(pid, int) else -1,
        lock=_clean(message.get("lock")),
    )
    return Handshake(client, role, message.get("request", {}), size)


def _clean(value: object) -> str:
    """Return a usable string or an empty one: without NUL and lone surrogates, and not too long."""
    if not isinstance(value, str) or "\0" in value or len(value) > _LONGEST_VALUE:
        return ""
    return value.encode("utf-8", "replace").decode()


def _environment(value: object) -> Mapping[str, str]:
    """Return the known variables that have a usable value."""
    given = value if isinstance(value, dict) else {}
    known = {name: _clean(given.get(name)) for name in HANDSHAKE_ENVIRONMENT}
    return MappingProxyType({name: text for name, text in known.items() if text})
