"""The parts of the daemon's replies: one row type for each list, and the parts of a turn.

`daemon_requests`, `session_requests` and `attachment_requests` have the replies that hold them. Sizes are in bytes.
"""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json


@dataclass(frozen=True, slots=True)
class OpenSession:
    """An open session, with what a person recognizes it by. ``kernel`` is ``not started``, ``idle`` or ``busy``."""

    session: str
    policy: str
    workspace: str
    contexts: int
    content_bytes: int
    kernel: str
    last_used: str
    connection_file: str


@dataclass(frozen=True, slots=True)
class RestingSession:
    """A suspended session, and until when it is kept; None: until someone ends it."""

    session: str
    policy: str
    workspace: str | None
    contexts: int
    content_bytes: int
    kernel: str
    pending_llm_queries: tuple[str, ...]
    last_used: str
    kept_until: str | None


@dataclass(frozen=True, slots=True)
class SessionLine:
    """An open session in the overview: sizes in bytes, ``last_used`` in epoch seconds."""

    session: str
    state: str
    policy: str
    workspace: str | None
    memory_bytes: int
    memory_limit: int
    walls_standing: int
    walls_missing: tuple[str, ...]
    refused: int
    refused_cells: int
    contexts: int
    content_bytes: int
    active_cells: int
    last_used: float
    parent: str | None
    pending: int


@dataclass(frozen=True, slots=True)
class RestingLine:
    """A suspended session, in the overview; times in epoch seconds."""

    session: str
    policy: str
    last_used: float
    kept_until: float | None


@dataclass(frozen=True, slots=True)
class PastLine:
    """An ended session, in the overview: how and when it ended (epoch seconds)."""

    session: str
    state: str
    ended: float


@dataclass(frozen=True, slots=True)
class AskedLine:
    """A query that waits for its answer, in the overview; the prompt is cut, ``asked`` is in epoch seconds."""

    session: str
    id: str
    prompt: str
    model: str | None
    asked: float


@dataclass(frozen=True, slots=True)
class FrameLine:
    """A running goal, in the overview; it is cut, and ``session`` is where its cells run, if it has one."""

    id: str
    parent: str | None
    goal: str
    status: str
    session: str | None
    started: float | None


@dataclass(frozen=True, slots=True)
class JournalCell:
    """A cell that ran, with the ids of the queries that it asked; times as ISO 8601 text.

    ``number`` is its number among the cells of all sessions, ``count`` the number that its kernel gave it.
    """

    author: str
    code: str
    started_at: str
    ended_at: str
    status: str
    output: str
    queries: tuple[str, ...]
    attachment: str | None
    number: int
    seconds: float
    count: int | None = None


@dataclass(frozen=True, slots=True)
class WaitingQuery:
    """A query that waits for its answer, which must match the JSON ``schema`` if there is one.

    ``recursive`` marks a query of ``rlm_query``; ``by_tool`` one that a tool asked, not code.
    """

    id: str
    prompt: str
    model: str | None
    schema: Json = None
    recursive: bool = False
    by_tool: bool = False


@dataclass(frozen=True, slots=True)
class SaidMessage:
    """A message of a conversation with a model."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class AnswerUse:
    """The usage of a model's answer to a query from code."""

    query: str
    model: str
    input_tokens: int
    output_tokens: int
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class NotKept:
    """Something that is missing in a snapshot, or was not restored from it, and why."""

    name: str
    reason: str
