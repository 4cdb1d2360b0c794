"""What a client may ask of the daemon and what it answers: one request and one reply type for each role.

A connection has one role. `ROLES` is the table of roles: the name on the wire, and the type of the request. The daemon
dispatches by it; the Python client and the command line build their requests from the same types. The types are in
`daemon_requests`, `session_requests`, `chain_requests`, `lock_requests` and `attachment_requests`. The generic
parameter of a request is the type of its reply: mypy and the reader of replies (`messages.reply_type`) take it from
there.

On the wire, a request is in the handshake line under ``request``, or follows the line when it is long. A reply is in
the daemon's first line, an `Accepted` or a `Refused`. The role ``mcp`` then continues with JSON-RPC.

The front does not load this module: dataclasses cost 10 ms, and a client waits for it. It writes its handshake line
with `json_lines.handshake_line`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from rlm_ipc.attachment_requests import AddAttachment, EnterAttachment, ListAttachments, RevokeAttachment
from rlm_ipc.chain_requests import NoteChain, NoteRun, OpenChain, SurveyWork
from rlm_ipc.daemon_requests import (
    NoteHook,
    Request,
    ServeHttp,
    ServeMcp,
    ServeWeb,
    ShowPrime,
    ShowStatus,
    StopDaemon,
    Tidy,
)
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.lock_requests import ShowLock
from rlm_ipc.messages import Json
from rlm_ipc.session_requests import (
    ApplyPolicy,
    KeepStop,
    KeepTurn,
    ListJournal,
    ListQueries,
    ListSessions,
    RestoreSession,
    SaveSession,
    ShowOverview,
    ShowRecord,
    ShowRunsBelow,
    ShowTree,
)
from rlm_ipc.work_requests import ExportWork, ImportWork, ShowMeasures


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
    """The daemon's first line when it serves the role; ``reply`` is of the type that the request names."""

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


ROLES: Mapping[str, type[Request[Any]]] = {
    "mcp": ServeMcp,
    "status": ShowStatus,
    "stop": StopDaemon,
    "tidy": Tidy,
    "http": ServeHttp,
    "web": ServeWeb,
    "hook": NoteHook,
    "prime": ShowPrime,
    "chain": OpenChain,
    "note_chain": NoteChain,
    "note_run": NoteRun,
    "survey": SurveyWork,
    "sessions": ListSessions,
    "overview": ShowOverview,
    "journal": ListJournal,
    "record": ShowRecord,
    "runs_below": ShowRunsBelow,
    "tree": ShowTree,
    "import_work": ImportWork,
    "export_work": ExportWork,
    "measures": ShowMeasures,
    "lock": ShowLock,
    "queries": ListQueries,
    "turn": KeepTurn,
    "run_stopped": KeepStop,
    "save": SaveSession,
    "restore": RestoreSession,
    "policy": ApplyPolicy,
    "attachments": ListAttachments,
    "add_attachment": AddAttachment,
    "revoke_attachment": RevokeAttachment,
    "enter_attachment": EnterAttachment,
}
"""Every role by its name on the wire."""

_NAMES = {request: name for name, request in ROLES.items()}


def role_of(request: Request[Any]) -> str:
    """Return the name of the role that a request is for."""
    return _NAMES[type(request)]
