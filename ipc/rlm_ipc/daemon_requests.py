"""What a client may ask of the daemon itself, and what the daemon replies; `daemon_protocol` has the table."""

from __future__ import annotations

from typing import Generic, TypeVar

from rlm_ipc.late_dataclasses import dataclass

Reply = TypeVar("Reply")


class Request(Generic[Reply]):
    """Base of the requests; ``Reply`` is the type of the answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ServeMcp(Request["McpServed"]):
    """Speak MCP on this connection from now on, one JSON-RPC message a line."""


@dataclass(frozen=True, slots=True)
class McpServed:
    """MCP is spoken from here on."""


@dataclass(frozen=True, slots=True)
class ShowStatus(Request["DaemonStatus"]):
    """Describe the daemon."""


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """The daemon: ``clients`` are the MCP clients at its socket, ``http`` the URLs that it serves."""

    clients: int
    uptime_seconds: float
    idle_seconds: float
    python: str
    http: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopDaemon(Request["Stopping"]):
    """End the daemon; kernels keep running without it."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The daemon is ending; the connection closes when it has ended."""


@dataclass(frozen=True, slots=True)
class Tidy(Request["Tidied"]):
    """Free what nobody can reach any more."""


@dataclass(frozen=True, slots=True)
class Tidied:
    """How many bytes of texts were freed."""

    freed_bytes: int


@dataclass(frozen=True, slots=True)
class ServeHttp(Request["HttpServed"]):
    """Serve MCP over HTTP on a loopback address while the connection stays open."""

    host: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class HttpServed:
    """The URL, and the file with the token."""

    url: str
    token_file: str


@dataclass(frozen=True, slots=True)
class ServeWeb(Request["WebServed"]):
    """Serve the web page on a loopback address while the connection stays open."""

    host: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class WebServed:
    """The URL, and the token that opens the page."""

    url: str
    token: str


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A process above that of a hook, with its start time in ticks since the system started."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True)
class NoteHook(Request["HookNoted"]):
    """Record what a client told its hook: ``given`` unchanged, at an epoch second. ``id`` identifies this event."""

    client: str
    event: str
    given: str
    at: float
    id: str
    ancestors: tuple[Ancestor, ...]


@dataclass(frozen=True, slots=True)
class HookNoted:
    """The event is recorded. ``output`` is what the hook prints, in the client's own format; usually empty."""

    output: str


@dataclass(frozen=True, slots=True)
class ShowPrime(Request["PrimeShown"]):
    """Show the state of the work on the goals of a folder's repository."""

    folder: str


@dataclass(frozen=True, slots=True)
class PrimeShown:
    """The text for an agent that starts there; empty if nothing is in progress."""

    text: str
