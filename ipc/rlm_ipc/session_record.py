"""The record of a session: what ran in it, with everything that a person needs to understand and repeat it.

Times are epoch seconds, sizes bytes. Output of code and kernels is recorded unchanged.
"""

from __future__ import annotations

from rlm_ipc.daemon_rows import SaidMessage
from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query that a cell asked. ``model`` answered it or was requested; ``seconds`` is how long the answer took."""

    id: str
    prompt: str
    state: str
    answer: str | None = None
    error: str | None = None
    model: str | None = None
    seconds: float = 0.0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class RecordedContext:
    """A loaded text: its hash in the context store, and the paths that it came from."""

    name: str
    digest: str
    size: int
    line_count: int
    type: str
    origin: str
    paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedCell:
    """A cell of the journal. ``displays`` are its pictures and HTML by MIME type.

    ``number`` is its number among the cells of all sessions. ``count`` is the number that its kernel gave it, which
    tracebacks and front ends show. ``output`` is all its text; ``value``, the text of its last expression, is part of
    it.
    """

    number: int
    author: str
    code: str
    started_at: float
    ended_at: float
    status: str
    output: str
    queries: tuple[RecordedQuery, ...] = ()
    attachment: str | None = None
    displays: tuple[dict[str, str], ...] = ()
    count: int | None = None
    value: str = ""
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedVariable:
    """A variable as its kernel described it."""

    name: str
    type: str
    preview: str


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A turn of a model that works in the session by itself; ``said`` are the messages since its previous turn.

    ``variables`` are those of the session after it; ``number`` is unique among the turns of all sessions.
    """

    model: str
    said: tuple[SaidMessage, ...]
    reply: str
    final: str | None
    started_at: float
    ended_at: float
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    variables: tuple[RecordedVariable, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True)
class AttachmentNote:
    """An event of an attachment; ``at`` is ISO 8601 text."""

    attachment: str
    event: str
    at: str


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The cells, oldest first. ``kernelspec`` is the name under which Jupyter lists the session while it lives."""

    session: str
    policy: str
    state: str
    contexts: tuple[RecordedContext, ...] = ()
    cells: tuple[RecordedCell, ...] = ()
    turns: tuple[RecordedTurn, ...] = ()
    kernelspec: str | None = None
    attachments: tuple[AttachmentNote, ...] = ()


@dataclass(frozen=True, slots=True)
class RunBelow:
    """The record of an ended session that was forked from the session ``parent`` for a part of its question."""

    parent: str
    record: SessionRecord
