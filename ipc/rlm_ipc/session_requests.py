"""What a client may ask about sessions, and what the daemon replies; `daemon_protocol` has the table."""

from __future__ import annotations

from rlm_ipc.daemon_requests import Request
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
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.session_record import RecordedVariable, RunBelow, SessionRecord
from rlm_ipc.tree_record import TreeRecord


@dataclass(frozen=True, slots=True)
class ListSessions(Request["SessionList"]):
    """List the sessions of this user."""


@dataclass(frozen=True, slots=True)
class SessionList:
    """The open sessions and the suspended ones."""

    sessions: tuple[OpenSession, ...]
    resting: tuple[RestingSession, ...]


@dataclass(frozen=True, slots=True)
class ShowOverview(Request["SessionsSeen"]):
    """Show all sessions at a glance, with what each holds and does."""


@dataclass(frozen=True, slots=True)
class SessionsSeen:
    """Open, suspended and recently ended sessions, what waits for answers, and running goals."""

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
    """The cells, oldest first."""

    cells: tuple[JournalCell, ...]


@dataclass(frozen=True, slots=True)
class ShowRecord(Request[SessionRecord]):
    """Show what ran in a session with everything needed to repeat it: policy, contexts, cells, queries and answers."""

    session: str
    last: int | None = None


@dataclass(frozen=True, slots=True)
class ShowRunsBelow(Request["RunsBelow"]):
    """Show what models ran in sessions that this one's code forked with ``rlm_query``, as far as it is kept."""

    session: str


@dataclass(frozen=True, slots=True)
class RunsBelow:
    """The records of these sessions and of those below them, a parent before its children."""

    runs: tuple[RunBelow, ...]


@dataclass(frozen=True, slots=True)
class ShowTree(Request[TreeRecord]):
    """Show a frame and everything below it; with ``cells`` also what ran for them, and the texts of their sessions."""

    frame: str
    cells: bool = True


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
    """Record a turn of the model that works in a session; times in epoch seconds, ``cost`` in US dollars.

    ``lasting``: the session exists for this run alone, whose record outlives it.
    """

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
    cost: float = 0.0
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class TurnKept:
    """The session of the turn, and the variables that it has after it."""

    kept: str
    variables: tuple[RecordedVariable, ...] = ()


@dataclass(frozen=True, slots=True)
class KeepStop(Request["StopKept"]):
    """Record why the run of a session that exists only for it ends without an answer."""

    session: str
    reason: str


@dataclass(frozen=True, slots=True)
class StopKept:
    """Whether the run has turns, so that it is kept at all."""

    kept: bool


@dataclass(frozen=True, slots=True)
class SaveSession(Request["SessionSaved"]):
    """Write a session to a file, one of ours if none is named; with ``embed`` it includes the texts of its contexts."""

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

    ``session`` is the id to open it under (None: the saved one's). ``policy`` is the policy to run it under (None: the
    default for a file, its own for one of our snapshots). A file that this user's daemon has not sealed needs
    ``foreign``.
    """

    source: str
    file: str | None = None
    session: str | None = None
    policy: str | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True)
class SessionRestored:
    """What was restored and what was not."""

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
    """Give a session another policy, by name or path; one that permits more only if ``looser`` is set."""

    session: str
    policy: str
    looser: bool = False


@dataclass(frozen=True, slots=True)
class PolicyApplied:
    """The policy in force, and the fields in which it permits more than the previous one."""

    session: str
    policy: str
    policy_sha256: str
    permits_more: tuple[str, ...]
