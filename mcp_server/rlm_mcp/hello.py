"""Who is calling: what a client's hello line says, and the context variable that carries it to the tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rlm_kernel.link import HELLO_ENVIRONMENT, PROTOCOL
from rlm_mcp.errors import HelloRefused

__all__ = ["ClientHello", "current_hello", "parse_hello"]

_NOTHING: Mapping[str, str] = MappingProxyType({})
_LONGEST_VALUE = 4096


@dataclass(frozen=True)
class ClientHello:
    """What the daemon knows of a client process.

    ``cwd`` is the client's working directory (empty: not known, as over HTTP), ``env`` at most the variables
    of :data:`rlm_kernel.link.HELLO_ENVIRONMENT`, ``pid`` its process id (-1: not known). All of it is the
    client's claim, checked for shape only: it says which session to use, never what is allowed.
    """

    cwd: str = ""
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    pid: int = -1


_UNKNOWN = ClientHello()
current_hello: ContextVar[ClientHello] = ContextVar("current_hello", default=_UNKNOWN)
"""The hello of the connection that the running handler serves."""


def parse_hello(line: bytes) -> tuple[ClientHello, dict[str, Any]]:
    """Return the client and the whole hello message; raises :class:`HelloRefused` for anything else."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict) or "rlm" not in message:
        raise HelloRefused("this socket is for rlm-kernel's own front; connect with the command: rlm-kernel mcp")
    if message["rlm"] != PROTOCOL:
        raise HelloRefused(
            f"the daemon speaks protocol {PROTOCOL}, the client {message['rlm']!r}; "
            "run `rlm-kernel daemon stop` and use one version of rlm-kernel"
        )
    pid = message.get("pid")
    hello = ClientHello(
        cwd=_clean(message.get("cwd")),
        env=_environment(message.get("env")),
        pid=pid if isinstance(pid, int) else -1,
    )
    return hello, message


def _clean(value: object) -> str:
    """Return a usable string or nothing: no NUL, no lone surrogate, no endless one."""
    if not isinstance(value, str) or "\0" in value or len(value) > _LONGEST_VALUE:
        return ""
    return value.encode("utf-8", "replace").decode()


def _environment(value: object) -> Mapping[str, str]:
    """Return the known variables that have a usable value."""
    given = value if isinstance(value, dict) else {}
    known = {name: _clean(given.get(name)) for name in HELLO_ENVIRONMENT}
    return MappingProxyType({name: text for name, text in known.items() if text})
