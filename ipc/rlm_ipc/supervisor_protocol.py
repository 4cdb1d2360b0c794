"""What the daemon, provisioners and bridges say to the supervisor, and what it answers and reports.

Each call is one row of `OPERATIONS`: its name, its request, its reply. Each event is one row of `EVENTS`. Clients and
server (`rlm_kernel.supervisor.server`) take the messages from here alone; `supervisor_wire` writes and reads them.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Generic, TypeVar

from rlm_ipc import supervisor_core as core
from rlm_ipc.kernel_reports import (
    AskedQuery,
    BudgetUsed,
    CellNote,
    CellNotes,
    CellResult,
    ForkInfo,
    GivenAnswers,
    KernelInfo,
    QueryOutcome,
    RollbackInfo,
    RunningCell,
)
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """A kernel that a caller wants.

    ``connection`` is a Jupyter connection to bind (None: ipc in the runtime folder), ``connection_file`` where the
    caller writes it. ``query_base`` is the number of the first query. ``label`` is the caller's own and is returned in
    `KernelInfo`. A ``trusted`` fork may lack its parent's language wall; it ends with its front end. An ``owned``
    kernel belongs to its caller alone: it ends with the caller's connection, and when a Jupyter client asks it to shut
    down. Sessions of agents outlive both.
    """

    kernel_id: str
    workspace: str | None = None
    connection: dict[str, Json] | None = None
    connection_file: str | None = None
    query_base: int = 0
    label: dict[str, Json] = field(default_factory=dict)
    owned: bool = False
    trusted: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The reply to a call that returns nothing."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a kernel.

    ``policy`` is JSON with real paths, ``scratch`` the folder for files of the session's code, and ``protect`` what no
    code may reach, whatever the policy says.
    """

    request: SpawnRequest
    policy: str
    scratch: str
    protect: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fork:
    """Start a kernel that has every variable of ``parent``; the request's ``query_base`` is not used."""

    parent: str
    child: Spawn


@dataclass(frozen=True, slots=True)
class ListKernels:
    """List every kernel."""


@dataclass(frozen=True, slots=True)
class KernelList:
    """Every kernel that the supervisor holds."""

    kernels: tuple[KernelInfo, ...]


@dataclass(frozen=True, slots=True)
class OfKernel:
    """A call about one kernel without further fields. If it ends the kernel, front ends see ``why``."""

    kernel_id: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PolicyText:
    """The policy of a kernel as JSON, with real paths."""

    policy: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a cell after the waiting ones, once for each name ``run``; the reply comes when it has ended."""

    kernel_id: str
    code: str
    store_history: bool = True
    run: str = ""
    after: str = ""  # run only if the cell named here is known to have succeeded; otherwise skip
    attachment: str = ""  # `TERMINAL` instead: a person runs the cell at a terminal


@dataclass(frozen=True, slots=True)
class Stop:
    """End one cell, whether it waits, is about to start or runs; ``run`` is its name."""

    kernel_id: str
    run: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """False if there was nothing to stop."""

    stopped: bool


@dataclass(frozen=True, slots=True)
class OutputSoFar:
    """The output so far of the request that runs now; ``cell`` is None when it is not a cell, or none runs."""

    stdout: str
    stderr: str
    cell: RunningCell | None


@dataclass(frozen=True, slots=True)
class AskWorker:
    """Pass one of our requests on to the kernel process, in order with cells, after ``wait_seconds`` at the latest.

    A descriptor sent with it is passed along. The kernel's answer may be anything, so the caller must check it.
    """

    kernel_id: str
    request: dict[str, Json]
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """The kernel process's answer; blobs are sent with it."""

    content: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a context to a global, in place of its present value; its descriptors are sent with the call.

    ``header`` says how to read the descriptors, ``type`` and ``metadata`` are the context's. `KernelInfo` reports the
    ``revision``.
    """

    kernel_id: str
    name: str
    header: dict[str, Json]
    type: str
    metadata: dict[str, Json]
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Unbind:
    """Remove a context from its global."""

    kernel_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Resolve:
    """Pass outcomes to a kernel, at once to a cell that waits for them; see `worker_protocol.Resolved`."""

    kernel_id: str
    answers: dict[str, QueryOutcome]
    used: BudgetUsed | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """The ids that the kernel was waiting for."""

    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryList:
    """Unanswered queries."""

    queries: tuple[AskedQuery, ...]


@dataclass(frozen=True, slots=True)
class CellsAfter:
    """Return the latest cells whose result no caller got, from that serial on."""

    kernel_id: str
    after: int


@dataclass(frozen=True, slots=True)
class Attach:
    """The connection is a bridge's ``line``, with one name for all supervisors. An ``owned`` kernel ends with it."""

    kernel_id: str
    attachment: str
    line: str
    watches: bool = False  # and runs nothing
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Detach:
    """Disconnect every front end that has the attachment open."""

    kernel_id: str
    attachment: str


@dataclass(frozen=True, slots=True)
class Detached:
    """How many front ends there were."""

    closed: int


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt what is running; with ``escalate`` it ends, whatever it does."""

    kernel_id: str
    escalate: bool = False


@dataclass(frozen=True, slots=True)
class Rollback:
    """Undo the last completed ``cells``."""

    kernel_id: str
    cells: int


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Answer when there are that many bytes of memory for the kernel's next data, or say that there are not."""

    kernel_id: str
    size: int


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The kernel has ended; a session forked from it may also use its scratch folder (``shared``)."""

    shared: bool


@dataclass(frozen=True, slots=True, eq=False)
class Operation(Generic[Request, Reply]):
    """A call: its name on the wire, and the types of its request and its reply."""

    name: str
    request: type[Request]
    reply: type[Reply]

    @property
    def of_core(self) -> bool:
        """Whether every version knows it (`supervisor_core`)."""
        return issubclass(self.request, core.Core)


HELLO = Operation("hello", core.Hello, core.Welcome)
LIST_ALL = Operation("list", core.ListAll, core.CoreKernels)
SAVE = Operation("save", core.CoreSave, core.CoreSaved)
STOP_ALL = Operation("stop_all", core.StopAll, Done)
HAND_OVER = Operation("hand_over", core.HandOver, Done)
SPAWN = Operation("spawn", Spawn, KernelInfo)
FORK = Operation("fork", Fork, ForkInfo)
KERNELS = Operation("kernels", ListKernels, KernelList)
INFO = Operation("info", OfKernel, KernelInfo)
POLICY = Operation("policy", OfKernel, PolicyText)
EXECUTE = Operation("execute", Execute, CellResult)
STOP = Operation("stop", Stop, Stopped)
OUTPUT = Operation("output", OfKernel, OutputSoFar)
ASK = Operation("ask", AskWorker, WorkerAnswer)
BIND = Operation("bind", Bind, Done)
UNBIND = Operation("unbind", Unbind, Done)
RESOLVE = Operation("resolve", Resolve, Resolved)
QUERIES = Operation("queries", OfKernel, QueryList)
CELLS = Operation("cells", CellsAfter, CellNotes)
ATTACH = Operation("attach", Attach, Done)
DETACH = Operation("detach", Detach, Detached)
INTERRUPT = Operation("interrupt", Interrupt, Stopped)
RESTART = Operation("restart", OfKernel, Done)
ROLLBACK = Operation("rollback", Rollback, RollbackInfo)
MAKE_ROOM = Operation("make_room", MakeRoom, Done)
SHUTDOWN = Operation("shutdown", OfKernel, ShutDown)

ONCE = (FORK, ROLLBACK, ATTACH, HAND_OVER)
"""Calls that are not repeated at another supervisor: they may have been carried out, and must not run twice."""
OPERATIONS: dict[str, Operation[Any, Any]] = {
    row.name: row for row in list(globals().values()) if isinstance(row, Operation)
}


@dataclass(frozen=True, slots=True)
class QueriesAsked:
    """Code has asked queries; many of them come in several events."""

    queries: tuple[AskedQuery, ...]


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """The running cell waits for the answers to these queries; without any, it continues."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswersAssigned:
    """A cell without a listening caller has given answers to queries itself."""

    given: GivenAnswers


@dataclass(frozen=True, slots=True)
class CellEnded:
    """A cell without a listening caller has ended."""

    cell: CellNote


@dataclass(frozen=True, slots=True)
class AttachmentChanged:
    """A front end has opened the attachment, or left it."""

    attachment: str
    open: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """Another process has taken over, ``anew`` or without ``lost`` cells; it may not know the budget's use."""

    anew: bool = False
    lost: int = 0


@dataclass(frozen=True, slots=True)
class LowMemory:
    """The machine is short of memory, and the kernel is idle: save it if it can come back, and end it."""


@dataclass(frozen=True, slots=True)
class KernelEnded:
    """The kernel is gone; ``expelled`` is why its session ends with it, empty if it does not."""

    expelled: str = ""


Event = QueriesAsked | WaitsFor | AnswersAssigned | CellEnded | AttachmentChanged | Recovered | LowMemory | KernelEnded

EVENTS: dict[str, type[Event]] = {
    "queries": QueriesAsked,
    "waiting": WaitsFor,
    "given": AnswersAssigned,
    "cell": CellEnded,
    "attachment": AttachmentChanged,
    "recovered": Recovered,
    "low_memory": LowMemory,
    "ended": KernelEnded,
}
