"""What the loop over a queue asks of the daemon, and what its rows are: chains, runs of agents, tasks.

The daemon keeps chains and runs as they come. What they mean, and what is to be done next, the loop decides
(`rlm_mcp.loop`). Times are epoch seconds.
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
    """The one before has handed over, or was told to: it ended by itself, and the task was not done."""
    RECOVERED = "recovered"
    """The one before was killed, or the machine was."""
    FIX = "fix"
    """The one before has failed, or the tests have after it."""


class Verdict(enum.StrEnum):
    """What has become of a run of an agent."""

    PASSED = "passed"
    FAILED = "failed"
    """The agent says that the task cannot be done."""
    BLOCKED = "blocked"
    """The agent says what it waits for."""
    PARTIAL = "partial"
    FAULTY = "faulty"
    """It ended with an error, or the tests failed."""
    CRASHED = "crashed"
    LOST = "lost"
    """Somebody else has the task now."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: the command, its exit status, what its tests have told, and the end of its output."""

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

    ``verdict`` is None while it runs. ``left`` names files that it has left uncommitted.
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
    """The work of one loop on one scope, also when it is killed and goes on. ``loop`` is the process that runs it.

    A batch is over when ``size`` tasks have ended in it; that many are worked on at once. ``over`` are those that have.
    ``outcome`` is empty until the chain has ended.
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

    ``process`` is the one that its lease is tied to; ``after`` are the frames that it waits for, or has waited for;
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
    """Begin a chain in the tree of a session, or with ``go_on`` go on with the last one that has not ended.

    The session is the one that a tool call of the same client would have: it is named, or follows from the folder.

    ``loop`` names the process that asks; ``size`` is that of every batch, 0: as they go. Without
    ``options`` a chain that goes on has those that it had.
    """

    session: str | None
    scope: str | None
    loop: str
    options: Json
    size: int
    go_on: bool


@dataclass(frozen=True, slots=True)
class ChainOpened:
    """The chain, the frame that is all of its scope, and the runs that it had so far."""

    chain: Chain
    top: str
    runs: tuple[AgentRun, ...]


@dataclass(frozen=True, slots=True)
class NoteChain(Request["BatchNoted"]):
    """Keep a chain as it is now. ``batch_outcome`` tells how a batch of ``batch_size`` with ``tasks`` has ended."""

    chain: Chain
    batch_outcome: str = ""
    batch_size: int = 0
    tasks: int = 0
    interrupted: int = 0


@dataclass(frozen=True, slots=True)
class BatchNoted:
    """It is kept; so many tasks the next batch is to have."""

    next_size: int


@dataclass(frozen=True, slots=True)
class NoteRun(Request["Noted"]):
    """Keep a run of an agent as it is now."""

    chain: int
    run: AgentRun


@dataclass(frozen=True, slots=True)
class Noted:
    """It is kept."""


@dataclass(frozen=True, slots=True)
class SurveyWork(Request["WorkSurveyed"]):
    """Show a frame and all below it."""

    frame: str


@dataclass(frozen=True, slots=True)
class WorkSurveyed:
    """The frames, the highest first; none that stands for a session."""

    frames: tuple[TaskLine, ...]
