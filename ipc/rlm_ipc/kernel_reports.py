"""Reports about kernels: their state, their walls, cells and queries, and the results of forks and rollbacks.

The messages that carry these are in `rlm_ipc.supervisor_protocol`, and for the worker's own messages in
`rlm_ipc.worker_protocol`.
"""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json
from rlm_ipc.outcomes import Ended, Loss, Uncopied


@dataclass(frozen=True, slots=True)
class WallState:
    """Whether a wall is active, and what it covers or why it is not active."""

    standing: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The attempts that a kernel's walls have refused.

    The supervisor has counted ``system_calls``; ``latest_call`` is the name of the last one. The kernel reports the
    other two, possibly untruly: what its ``audit`` hook refused, and the ``cells`` that did not compile under the
    policy.
    """

    system_calls: int
    latest_call: str
    audit: int
    cells: int


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """A kernel that the supervisor holds.

    ``undoable`` are the numbers of the last cells that a rollback can undo, ``latest`` is the beginning of these cells'
    code, newest first. ``memory_bytes`` is the memory that its code uses, as ``limits.memory_bytes`` counts it.
    ``walls`` are active around it. ``last_used`` is when a client last had it run something, in seconds since the
    epoch. ``contexts`` are the loaded texts by name, with the revision under which each was bound; for those in
    ``shadowed`` the name means something else in code. ``waiting`` are the queries that its cell waits for,
    ``attachments`` the attachments through which front ends have it open. ``uncopied`` is what no checkpoint holds
    because none can be taken. ``untouched`` says that it has no variables yet: nothing has run in it, and it was given
    none. ``anew_at`` is when someone last restarted it from scratch, in seconds since the epoch: what was saved of it
    before must not come back. ``lost`` is how many completed cells it lacks since another process took over, until a
    cell has reported that.
    """

    kernel_id: str
    pid: int | None
    connection: dict[str, Json]
    connection_file: str | None
    scratch: str
    walls: dict[str, WallState]
    policy: str
    state: str
    contexts: dict[str, int]
    shadowed: tuple[str, ...]
    label: dict[str, Json]
    memory_bytes: int
    checkpoint: bool
    uncopied: Uncopied | None
    untouched: bool
    undoable: tuple[int, ...]
    latest: tuple[str, ...]
    last_used: float
    waiting: tuple[str, ...]
    attachments: tuple[str, ...]
    refused: Refused
    anew_at: float = 0.0
    lost: int = 0


def id_of_query(number: int) -> str:
    """Return the id that people and models use for the query of that number. Code uses the number."""
    return f"q_{number:03d}"


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A query that code has asked. ``number`` counts up over the whole life of the session.

    ``schema`` is the JSON Schema of its answer, ``mode`` says who answers.
    """

    number: int
    prompt: str
    model: str | None = None
    mode: str = "deferred"
    schema: Json = None
    recursive: bool = False

    @property
    def id(self) -> str:
        """The id of the query; see `id_of_query`."""
        return id_of_query(self.number)


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The outcome of a query: an ``answer``, or the ``error`` in its place.

    ``over`` says that the budget is used up, ``by_code`` that code assigned it.
    """

    answer: str | None = None
    error: str | None = None
    over: bool = False
    by_code: bool = False


@dataclass(frozen=True, slots=True)
class GivenAnswers:
    """The answers that code itself has given to its queries, by putting them into ``llm_answers``.

    ``answers`` is a list, or an object by query id; None with a ``problem``, which says why they cannot be accepted.
    ``assigned`` says that the whole of ``llm_answers`` was assigned.
    """

    answers: Json = None
    problem: str | None = None
    assigned: bool = False


@dataclass(frozen=True, slots=True)
class BudgetUsed:
    """What the queries of a session have used: their number, and for providers tokens, cost and seconds."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CellError:
    """How a cell failed: the name of the error's class, its text, and the lines of its traceback."""

    ename: str
    evalue: str
    traceback: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellResult:
    """The result of a cell.

    ``stdout`` and ``stderr`` end at the policy's cap with a marker; then ``truncated`` is set and the file ``spool``
    holds all of it (the caller removes it; ``spool_complete`` is false if even that was cut). ``result`` is the text of
    the last expression, ``data`` its rich forms and other displays by MIME type, ``queries`` the ids of the queries
    that the cell asked (`AskedQuery` reported the rest at that time), ``defined`` the names it bound, ``shadowed`` the
    contexts whose names it took, ``returned`` those that have their names again after code had taken or deleted them,
    ``given`` the answers that its code has assigned to ``llm_answers``. ``seconds`` is how long it ran. ``error`` is
    for display only: session code chooses its name and text. ``ended`` is what ended the cell, ``reason`` the
    explanation unless it ended by itself, ``loss`` what was lost with its worker, ``uncopied`` what no checkpoint holds
    because none can be taken.
    """

    status: str
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    output_bytes: int = 0
    spool: str | None = None
    spool_complete: bool = True
    result: str | None = None
    data: tuple[dict[str, Json], ...] = ()
    error: CellError | None = None
    ended: Ended = Ended.BY_ITSELF
    reason: str = ""
    loss: Loss | None = None
    uncopied: Uncopied | None = None
    execution_count: int | None = None
    seconds: float = 0.0
    queries: tuple[str, ...] = ()
    defined: tuple[str, ...] = ()
    shadowed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    given: GivenAnswers | None = None


@dataclass(frozen=True, slots=True)
class CellNote:
    """A cell whose result no caller hears: one of a Jupyter client, or one whose caller has gone.

    ``serial`` counts those of a kernel. ``author`` is ``agent`` or ``notebook``; ``attachment`` is empty for a client
    at the kernel's own sockets. Times are seconds since the epoch. ``displays`` are its pictures and HTML by MIME type.
    ``count`` is the number that the kernel gave it, ``value`` the text of its last expression, a part of ``output``.
    """

    serial: int
    author: str
    attachment: str
    code: str
    started: float
    ended: float
    status: str
    output: str
    queries: tuple[str, ...]
    displays: tuple[dict[str, str], ...]
    count: int | None = None
    value: str = ""
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CellNotes:
    """Cells, oldest first."""

    cells: tuple[CellNote, ...]


@dataclass(frozen=True, slots=True)
class RunningCell:
    """A cell in progress: its code, its ``author``, and since when (epoch seconds).

    The author is ``agent``, ``notebook`` or ``terminal``. ``run`` is the name by which a later caller may claim it;
    empty if nobody may.
    """

    code: str
    author: str
    since: float
    run: str = ""


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """Where a forked session comes from.

    ``source`` is ``live`` (the parent was idle) or ``checkpoint`` (it ran a cell), which is ``cells_behind`` completed
    cells old. ``threads`` and ``tasks`` (their number) of the parent do not run in the child. ``dropped_modules`` are
    globals that its policy does not admit; ``queries`` are those pending in the parent, which in the child wait for
    answers of their own.
    """

    source: str
    cells_behind: int
    threads: tuple[str, ...] = ()
    tasks: int = 0
    dropped_modules: tuple[str, ...] = ()
    queries: tuple[AskedQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class ForkInfo:
    """A session that was forked: its ``kernel``, and where it comes from."""

    kernel: KernelInfo
    origin: ForkOrigin


@dataclass(frozen=True, slots=True)
class RollbackInfo:
    """What a rollback did.

    ``undone`` is the beginning of each cell's code, oldest first. ``restored`` are names that those cells had bound and
    that have their earlier value again (objects changed in place are not listed), ``gone`` those that did not exist
    before. ``queries`` were pending and are withdrawn. ``possible`` are the numbers of cells that could be undone next.
    """

    undone: tuple[str, ...]
    restored: tuple[str, ...]
    gone: tuple[str, ...]
    queries: tuple[str, ...]
    possible: tuple[int, ...]
