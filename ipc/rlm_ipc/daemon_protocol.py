"""What a client may ask of the daemon and what it answers: one request and one reply type for each role.

A connection has one role. `ROLES` is the table of roles: the name on the wire, the type of the request and the type of
the reply. The daemon dispatches by it; the Python client and the command line build their requests from the same types.
The types are in `daemon_requests`, `session_requests`, `chain_requests`, `lock_requests` and `attachment_requests`. The
generic parameter of a request is the type of its reply, so mypy knows what ``DaemonConnection(request).reply`` is.

On the wire, a request is in the handshake line under ``request``, or follows the line when it is long. A reply is in
the daemon's first line, an `Accepted` or a `Refused`. The role ``mcp`` then continues with JSON-RPC.

The front does not load this module: dataclasses cost 10 ms, and a client waits for it. It writes its handshake line
with `json_lines.handshake_line`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeVar

from rlm_ipc.attachment_requests import (
    AddAttachment,
    AttachmentInfo,
    AttachmentList,
    AttachmentOpened,
    AttachmentRevoked,
    EnterAttachment,
    ListAttachments,
    RevokeAttachment,
)
from rlm_ipc.chain_requests import (
    BatchNoted,
    ChainOpened,
    NoteChain,
    Noted,
    NoteRun,
    OpenChain,
    SurveyWork,
    WorkSurveyed,
)
from rlm_ipc.daemon_requests import (
    DaemonStatus,
    HookNoted,
    HttpServed,
    McpServed,
    NoteHook,
    PrimeShown,
    Request,
    ServeHttp,
    ServeMcp,
    ServeWeb,
    ShowPrime,
    ShowStatus,
    StopDaemon,
    Stopping,
    Tidied,
    Tidy,
    WebServed,
)
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.lock_requests import LockShown, ShowLock
from rlm_ipc.messages import Json
from rlm_ipc.session_record import SessionRecord
from rlm_ipc.session_requests import (
    ApplyPolicy,
    JournalPage,
    KeepStop,
    KeepTurn,
    ListJournal,
    ListQueries,
    ListSessions,
    PolicyApplied,
    QueryList,
    RestoreSession,
    RunsBelow,
    SaveSession,
    SessionList,
    SessionRestored,
    SessionSaved,
    SessionsSeen,
    ShowOverview,
    ShowRecord,
    ShowRunsBelow,
    ShowTree,
    StopKept,
    TurnKept,
)
from rlm_ipc.tree_record import TreeRecord
from rlm_ipc.work_requests import ExportWork, ImportWork, MeasuresShown, ShowMeasures, WorkExported, WorkImported

Reply = TypeVar("Reply")


class Fault(enum.StrEnum):
    """Whose fault a refusal is."""

    USAGE = "usage"
    """An argument of the request is invalid."""
    REQUEST = "request"
    """The request cannot be carried out in the present state."""
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
    """The daemon's first and last line when it does not serve the role; ``error`` says why and what to do."""

    rlm: int
    ok: bool
    error: str
    fault: Fault = Fault.DAEMON


@dataclass(frozen=True, slots=True)
class Role:
    """A role of a connection: its request, and the daemon's reply."""

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
    "hook": _role(NoteHook, HookNoted),
    "prime": _role(ShowPrime, PrimeShown),
    "chain": _role(OpenChain, ChainOpened),
    "note_chain": _role(NoteChain, BatchNoted),
    "note_run": _role(NoteRun, Noted),
    "survey": _role(SurveyWork, WorkSurveyed),
    "sessions": _role(ListSessions, SessionList),
    "overview": _role(ShowOverview, SessionsSeen),
    "journal": _role(ListJournal, JournalPage),
    "record": _role(ShowRecord, SessionRecord),
    "runs_below": _role(ShowRunsBelow, RunsBelow),
    "tree": _role(ShowTree, TreeRecord),
    "import_work": _role(ImportWork, WorkImported),
    "export_work": _role(ExportWork, WorkExported),
    "measures": _role(ShowMeasures, MeasuresShown),
    "lock": _role(ShowLock, LockShown),
    "queries": _role(ListQueries, QueryList),
    "turn": _role(KeepTurn, TurnKept),
    "run_stopped": _role(KeepStop, StopKept),
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
