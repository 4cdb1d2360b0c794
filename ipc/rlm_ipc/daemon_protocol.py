"""What a client may ask of the daemon and what it answers: one request and one reply type for each role.

A connection has one role. `ROLES` is the table of them: the name on the wire, the type of the request and the type of
the reply. The daemon dispatches by it; the Python client and the command line make their requests of the same types.
The generic parameter of a request is the type of its reply, so mypy knows what ``DaemonConnection(request).reply`` is.

On the wire, a request stands in the handshake line under ``request``, or behind the line when it is long. A reply
stands in the daemon's first line, an `Accepted` or a `Refused`. The role ``mcp`` then goes on with JSON-RPC.

The front does not load this module: dataclasses cost 10 ms, and a client waits for it. It writes its handshake line
with `json_lines.handshake_line`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlm_ipc.daemon_rows import (
    AnswerUse,
    AskedLine,
    FrameLine,
    JournalCell,
    NotKept,
    OpenSession,
    PastLine,
    RestingLine,
    RestingSession,
    SaidMessage,
    SessionLine,
    WaitingQuery,
)
from rlm_ipc.messages import Json
from rlm_ipc.session_record import SessionRecord

__all__ = [
    "ROLES",
    "Accepted",
    "AddAttachment",
    "ApplyPolicy",
    "AttachmentInfo",
    "AttachmentKind",
    "AttachmentList",
    "AttachmentOpened",
    "AttachmentRevoked",
    "DaemonStatus",
    "EnterAttachment",
    "Fault",
    "HttpServed",
    "JournalPage",
    "KeepTurn",
    "ListAttachments",
    "ListJournal",
    "ListQueries",
    "ListSessions",
    "McpServed",
    "PolicyApplied",
    "QueryList",
    "Refused",
    "Request",
    "RestoreSession",
    "RevokeAttachment",
    "Role",
    "SaveSession",
    "ServeHttp",
    "ServeMcp",
    "ServeWeb",
    "SessionList",
    "SessionRestored",
    "SessionSaved",
    "SessionsSeen",
    "ShowOverview",
    "ShowRecord",
    "ShowStatus",
    "StopDaemon",
    "Stopping",
    "Tidied",
    "Tidy",
    "TurnKept",
    "WebServed",
    "role_of",
]

Reply = TypeVar("Reply")


class Request(Generic[Reply]):
    """Base of the requests; ``Reply`` is what answers it."""

    __slots__ = ()


# --- the envelope of every reply ------------------------------------------------------------------


class Fault(enum.StrEnum):
    """Whose fault a refusal is."""

    USAGE = "usage"
    """An argument of the request is invalid."""
    REQUEST = "request"
    """The request cannot be carried out as things are."""
    DAEMON = "daemon"
    """The daemon or its machine cannot serve it; the same request may succeed elsewhere or later."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The daemon's first line when it serves the role; ``reply`` is of the type that `ROLES` names."""

    rlm: int
    ok: bool
    version: str
    pid: int
    reply: Json


@dataclass(frozen=True, slots=True)
class Refused:
    """The daemon's first and last line when it does not; ``error`` says why and what to do."""

    rlm: int
    ok: bool
    error: str
    fault: Fault = Fault.DAEMON


# --- the daemon itself ----------------------------------------------------------------------------


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
    """The daemon: ``clients`` are the other connections, ``http`` the URLs that it serves."""

    clients: int
    uptime_seconds: float
    idle_seconds: float
    python: str
    http: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StopDaemon(Request["Stopping"]):
    """End the daemon; kernels go on without it."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The daemon ends now; the connection ends when it has."""


@dataclass(frozen=True, slots=True)
class Tidy(Request["Tidied"]):
    """Free what nobody can reach any more."""


@dataclass(frozen=True, slots=True)
class Tidied:
    """Sessions that ``ended`` because they were due, bytes of texts freed, texts still read, and what is kept."""

    ended: tuple[str, ...]
    freed_bytes: int
    still_read: int
    resting: tuple[RestingSession, ...]


@dataclass(frozen=True, slots=True)
class ServeHttp(Request["HttpServed"]):
    """Serve MCP over HTTP on a loopback address for as long as the connection stays open."""

    host: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class HttpServed:
    """Where, and the file with the token."""

    url: str
    token_file: str


@dataclass(frozen=True, slots=True)
class ServeWeb(Request["WebServed"]):
    """Serve the web page on a loopback address for as long as the connection stays open."""

    host: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class WebServed:
    """Where, and the token that opens the page."""

    url: str
    token: str


# --- sessions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListSessions(Request["SessionList"]):
    """List the sessions of this user."""


@dataclass(frozen=True, slots=True)
class SessionList:
    """The open sessions, and those that rest."""

    sessions: tuple[OpenSession, ...]
    resting: tuple[RestingSession, ...]


@dataclass(frozen=True, slots=True)
class ShowOverview(Request["SessionsSeen"]):
    """Show all sessions at a glance, with what each holds and does."""


@dataclass(frozen=True, slots=True)
class SessionsSeen:
    """Open sessions, those that rest or have ended lately, what waits for answers, and goals that are worked for."""

    sessions: tuple[SessionLine, ...]
    resting: tuple[RestingLine, ...]
    past: tuple[PastLine, ...]
    asked: tuple[AskedLine, ...]
    frames: tuple[FrameLine, ...]


@dataclass(frozen=True, slots=True)
class ListJournal(Request["JournalPage"]):
    """List what ran in a session: all of it, or the ``last`` cells."""

    session: str
    last: int | None = None


@dataclass(frozen=True, slots=True)
class JournalPage:
    """The cells, the oldest first."""

    cells: tuple[JournalCell, ...]


@dataclass(frozen=True, slots=True)
class ShowRecord(Request["SessionRecord"]):
    """Show what ran in a session with all that repeats it: policy, contexts, cells, queries and answers."""

    session: str
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ListQueries(Request["QueryList"]):
    """List the pending queries of a session with their whole prompts."""

    session: str


@dataclass(frozen=True, slots=True)
class QueryList:
    """The queries in the order in which they were asked."""

    queries: tuple[WaitingQuery, ...]


@dataclass(frozen=True, slots=True)
class KeepTurn(Request["TurnKept"]):
    """Write down a turn of the model that works in a session; times in epoch seconds."""

    session: str
    model: str
    said: tuple[SaidMessage, ...]
    reply: str
    final: str | None
    input_tokens: int
    output_tokens: int
    started_at: float
    ended_at: float
    answers: tuple[AnswerUse, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnKept:
    """The session of which the turn is."""

    kept: str


# --- snapshots and policies -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SaveSession(Request["SessionSaved"]):
    """Write a session to a file, ours if none is named; with ``embed`` the texts of its contexts are in it."""

    session: str
    file: str | None = None
    embed: bool = False


@dataclass(frozen=True, slots=True)
class SessionSaved:
    """What is in the file and what is not."""

    saved: str
    file: str
    bytes: int
    variables: tuple[str, ...]
    code: tuple[str, ...]
    contexts: tuple[str, ...]
    not_saved: tuple[NotKept, ...]


@dataclass(frozen=True, slots=True)
class RestoreSession(Request["SessionRestored"]):
    """Open a session from a file, or from the snapshot that is kept of the session ``source``.

    ``session`` is the id to open it under (None: the one that was saved). ``policy`` is what it runs under (None: the
    default for a file, its own for a snapshot of ours).
    """

    source: str
    file: str | None = None
    session: str | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class SessionRestored:
    """What came back and what did not."""

    restored: str
    policy: str
    saved_at: str
    variables: tuple[str, ...]
    contexts: tuple[str, ...]
    pending_llm_queries: tuple[str, ...]
    not_restored: tuple[NotKept, ...]
    notice: str | None = None


@dataclass(frozen=True, slots=True)
class ApplyPolicy(Request["PolicyApplied"]):
    """Give a session another policy, by name or path; one that permits more only when ``looser`` says so."""

    session: str
    policy: str
    looser: bool = False


@dataclass(frozen=True, slots=True)
class PolicyApplied:
    """The policy in force, and the fields in which it permits more than the one before."""

    session: str
    policy: str
    policy_sha256: str
    permits_more: tuple[str, ...]


# --- attachments ----------------------------------------------------------------------------------


class AttachmentKind(enum.StrEnum):
    """What a front end may do at an attachment: look, run cells, or run plain Python in a copy of the session."""

    WATCH = "watch"
    EXECUTE = "execute"
    TRUSTED = "trusted"


@dataclass(frozen=True, slots=True)
class AttachmentInfo:
    """An attachment, and how many front ends have it ``open``."""

    attachment: str
    session: str
    mode: AttachmentKind
    open: int
    revoked: bool
    kernelspec: str
    created: str


@dataclass(frozen=True, slots=True)
class ListAttachments(Request["AttachmentList"]):
    """List the attachments of all open sessions."""


@dataclass(frozen=True, slots=True)
class AttachmentList:
    """The attachments."""

    attachments: tuple[AttachmentInfo, ...]


@dataclass(frozen=True, slots=True)
class AddAttachment(Request["AttachmentInfo"]):
    """Return a session's attachment of that mode, which is created if there is none."""

    session: str
    mode: AttachmentKind


@dataclass(frozen=True, slots=True)
class RevokeAttachment(Request["AttachmentRevoked"]):
    """End an attachment for good."""

    attachment: str


@dataclass(frozen=True, slots=True)
class AttachmentRevoked:
    """Which attachment of which session, and how many front ends have lost it."""

    revoked: str
    session: str
    closed: int


@dataclass(frozen=True, slots=True)
class EnterAttachment(Request["AttachmentOpened"]):
    """Let the front end in that shows the ``key`` of an attachment."""

    attachment: str
    key: str


@dataclass(frozen=True, slots=True)
class AttachmentOpened:
    """Which kernel to ask the supervisor for, under which name of the attachment.

    The front end only ``watches``, or owns the kernel, which then ends with it.
    """

    kernel_id: str
    attachment: str
    watches: bool = False
    owned: bool = False


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Role:
    """A role of a connection: what it is asked with, and what the daemon replies."""

    request: type[Request[Any]]
    reply: type[Any]


def _role(request: type[Request[Reply]], reply: type[Reply]) -> Role:
    """Return the role; mypy refuses a reply type that is not the request's own."""
    return Role(request, reply)


ROLES: Mapping[str, Role] = {
    "mcp": _role(ServeMcp, McpServed),
    "status": _role(ShowStatus, DaemonStatus),
    "stop": _role(StopDaemon, Stopping),
    "tidy": _role(Tidy, Tidied),
    "http": _role(ServeHttp, HttpServed),
    "web": _role(ServeWeb, WebServed),
    "sessions": _role(ListSessions, SessionList),
    "overview": _role(ShowOverview, SessionsSeen),
    "journal": _role(ListJournal, JournalPage),
    "record": _role(ShowRecord, SessionRecord),
    "queries": _role(ListQueries, QueryList),
    "turn": _role(KeepTurn, TurnKept),
    "save": _role(SaveSession, SessionSaved),
    "restore": _role(RestoreSession, SessionRestored),
    "policy": _role(ApplyPolicy, PolicyApplied),
    "attachments": _role(ListAttachments, AttachmentList),
    "add_attachment": _role(AddAttachment, AttachmentInfo),
    "revoke_attachment": _role(RevokeAttachment, AttachmentRevoked),
    "enter_attachment": _role(EnterAttachment, AttachmentOpened),
}
"""Every role by its name on the wire."""

_NAMES = {role.request: name for name, role in ROLES.items()}


def role_of(request: Request[Any]) -> str:
    """Return the name of the role that a request is for."""
    return _NAMES[type(request)]
