"""What the loop over a queue asks of the daemon, and its rows: chains, runs of agents, tasks.

The daemon stores chains and runs unchanged. The loop (`rlm_mcp.loop`) decides what they mean and what to do next. Times
are epoch seconds.
"""

from __future__ import annotations

import enum

from rlm_ipc.daemon_requests import Request
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json


class RunKind(enum.StrEnum):
    """Why an agent was started."""

    FIRST = "first"
    CONTINUED = "continued"
    """The previous agent handed over, or was told to: it ended by itself, and the task was not done."""
    RECOVERED = "recovered"
    """The previous agent was killed, or the machine went down."""
    FIX = "fix"
    """The previous agent failed, or the tests failed after it."""


class Verdict(enum.StrEnum):
    """The outcome of an agent's run."""

    PASSED = "passed"
    FAILED = "failed"
    """The agent says that the task cannot be done."""
    BLOCKED = "blocked"
    """The agent says what it is waiting for."""
    PARTIAL = "partial"
    FAULTY = "faulty"
    """It ended with an error, or the tests failed."""
    CRASHED = "crashed"
    LOST = "lost"
    """Someone else holds the task now."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: the command, its exit status, what its tests reported, and the end of its output."""

    command: str
    status: int
    runner: str = ""
    passed: int = 0
    failed: int = 0
    failing: tuple[str, ...] = ()
    output: str = ""


@dataclass(frozen=True, slots=True)
class AgentRun:
    """One run of an agent program for one task. ``process`` is the launcher that the lease is tied to.

    ``verdict`` is None while it runs. ``left`` names the files that it left uncommitted.
    """

    number: int
    task: str
    kind: RunKind
    started_at: float
    fence: int = 0
    process: str = ""
    folder: str = ""
    log: str = ""
    status: int | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    left: tuple[str, ...] = ()
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Chain:
    """The work of one loop on one scope, across kills and restarts. ``loop`` is the process that runs it.

    A batch is complete when ``size`` tasks have ended in it; that many are worked on at once. ``over`` are those that
    have ended. ``outcome`` is empty until the chain has ended.
    """

    number: int
    scope: str | None
    loop: str
    options: Json
    size: int
    batch: int = 1
    over: tuple[str, ...] = ()
    outcome: str = ""
    report: str = ""
    started_at: float = 0.0
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class HandedOff:
    """The hand-off of a task, without its details."""

    status: str
    summary: str
    files: tuple[str, ...]
    decisions: tuple[str, ...]
    at: float


@dataclass(frozen=True, slots=True)
class TaskLine:
    """A frame of the scope as the loop sees it. ``status`` is what lists show, such as ``ready`` or ``in_progress``.

    ``process`` is the process that its lease is tied to; ``after`` are the frames that it waits for, or has waited for;
    ``badly`` counts children that failed or are blocked.
    """

    id: str
    parent: str | None
    kind: str
    type: str
    title: str
    status: str
    held: bool
    process: str
    fence: int
    open_children: int
    badly: int
    after: tuple[str, ...]
    description: str
    acceptance: str
    paths: tuple[str, ...]
    progress: dict[str, Json]
    progress_at: float | None
    handoff: HandedOff | None


@dataclass(frozen=True, slots=True)
class OpenChain(Request["ChainOpened"]):
    """Start a chain in the tree of a session, or with ``continued`` continue the last open one.

    The session is the one that a tool call of the same client would use: it is named, or follows from the folder.

    ``loop`` identifies the calling process. ``size`` is the size of every batch; 0 lets it adapt. Without ``options`` a
    continued chain keeps those that it had.
    """

    session: str | None
    scope: str | None
    loop: str
    options: Json
    size: int
    continued: bool


@dataclass(frozen=True, slots=True)
class ChainOpened:
    """The chain, the frame at the top of its scope, and its runs so far."""

    chain: Chain
    top: str
    runs: tuple[AgentRun, ...]


@dataclass(frozen=True, slots=True)
class NoteChain(Request["BatchNoted"]):
    """Store a chain's present state. ``batch_outcome`` says how a batch of ``batch_size`` with ``tasks`` ended."""

    chain: Chain
    batch_outcome: str = ""
    batch_size: int = 0
    tasks: int = 0
    interrupted: int = 0


@dataclass(frozen=True, slots=True)
class BatchNoted:
    """The chain is stored; ``size`` is the size of the next batch."""

    next_size: int


@dataclass(frozen=True, slots=True)
class NoteRun(Request["Noted"]):
    """Store the present state of an agent's run."""

    chain: int
    run: AgentRun


@dataclass(frozen=True, slots=True)
class Noted:
    """It is stored."""


@dataclass(frozen=True, slots=True)
class SurveyWork(Request["WorkSurveyed"]):
    """Show a frame and everything below it."""

    frame: str


@dataclass(frozen=True, slots=True)
class WorkSurveyed:
    """The frames, top first, without those that stand for sessions."""

    frames: tuple[TaskLine, ...]
