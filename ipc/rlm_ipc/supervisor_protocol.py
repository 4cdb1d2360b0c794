"""What the daemon, provisioners and bridges say to the supervisor, and what it answers and reports.

Each call is one row of `OPERATIONS`: its name, its request, its reply. Each event is one row of `EVENTS`. Clients
and server (`rlm_kernel.supervisor.server`) know the messages from here alone, `supervisor_wire` writes and reads them.
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
    caller writes it. ``query_base`` is the number of the first query. ``label`` is the caller's own and is handed back
    with `KernelInfo`. A ``trusted`` fork may lack its parent's language wall; it ends with its front end. An ``owned``
    kernel is its caller's alone: it ends with the caller's connection, and when a Jupyter client asks it to shut down.
    Sessions of agents outlive both.
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
    """The reply of a call that has nothing to tell."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a kernel.

    ``policy`` is JSON with real paths, ``scratch`` the folder for files of the session's code, and ``protect`` what no
    code may reach whatever the policy says.
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
    """Tell every kernel."""


@dataclass(frozen=True, slots=True)
class KernelList:
    """Every kernel that the supervisor holds."""

    kernels: tuple[KernelInfo, ...]


@dataclass(frozen=True, slots=True)
class OfKernel:
    """A call about one kernel that needs no more. When it ends one, front ends are told ``why``."""

    kernel_id: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class PolicyText:
    """The policy of a kernel as JSON, with real paths."""

    policy: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Run a cell after those that wait; the reply comes when it has ended. By the name ``run`` it runs once only."""

    kernel_id: str
    code: str
    store_history: bool = True
    run: str = ""
    after: str = ""  # the cell that is known to have ended well before, or this one is skipped
    attachment: str = ""  # `TERMINAL` in place of one: a person runs the cell at a terminal


@dataclass(frozen=True, slots=True)
class Stop:
    """End one cell, whether it waits, is about to begin or runs; ``run`` is its name."""

    kernel_id: str
    run: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """False if there was nothing to stop."""

    stopped: bool


@dataclass(frozen=True, slots=True)
class OutputSoFar:
    """What the request that runs now has written; ``cell`` is None when it is no cell, or none runs."""

    stdout: str
    stderr: str
    cell: RunningCell | None


@dataclass(frozen=True, slots=True)
class AskWorker:
    """Pass a request of ours on to the kernel process, in order with cells, after ``wait_seconds`` at the latest.

    A descriptor beside it goes along. The kernel's answer may be anything: whoever asks has to look at it.
    """

    kernel_id: str
    request: dict[str, Json]
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What the kernel process has answered; blobs come beside it."""

    content: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a context to a global, in place of whatever that was; its descriptors come beside the call.

    ``header`` tells how the descriptors are read, ``type`` and ``metadata`` are the context's. `KernelInfo` tells the
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
    """Take a context from its global."""

    kernel_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Resolve:
    """Hand outcomes to a kernel, at once to a cell that waits for them; see `worker_protocol.Resolved`."""

    kernel_id: str
    answers: dict[str, QueryOutcome]
    used: BudgetUsed | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """The ids that the kernel waited for."""

    known: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryList:
    """Queries that nobody has answered."""

    queries: tuple[AskedQuery, ...]


@dataclass(frozen=True, slots=True)
class CellsAfter:
    """Tell the latest cells that no caller got the result of, from that serial on."""

    kernel_id: str
    after: int


@dataclass(frozen=True, slots=True)
class Attach:
    """The connection is a bridge's ``line``, of one name with each supervisor. An ``owned`` kernel ends with it."""

    kernel_id: str
    attachment: str
    line: str
    watches: bool = False  # and runs nothing
    owned: bool = False


@dataclass(frozen=True, slots=True)
class Detach:
    """Hang up on every front end that has the attachment open."""

    kernel_id: str
    attachment: str


@dataclass(frozen=True, slots=True)
class Detached:
    """How many front ends there were."""

    closed: int


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Interrupt what runs; with ``escalate`` it ends, whatever it does."""

    kernel_id: str
    escalate: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to the kernel process."""

    kernel_id: str
    signal: int


@dataclass(frozen=True, slots=True)
class Rollback:
    """Undo the last completed ``cells``."""

    kernel_id: str
    cells: int


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Answer when there are so many bytes of memory for what the kernel is given next, or say that there are not."""

    kernel_id: str
    size: int


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The kernel has ended; a session that was forked from it may have its scratch folder, too (``shared``)."""

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
SIGNAL = Operation("signal", Signal, Done)
RESTART = Operation("restart", OfKernel, Done)
ROLLBACK = Operation("rollback", Rollback, RollbackInfo)
MAKE_ROOM = Operation("make_room", MakeRoom, Done)
SHUTDOWN = Operation("shutdown", OfKernel, ShutDown)

ONCE = (FORK, ROLLBACK, ATTACH, SIGNAL, HAND_OVER)
"""Calls that another supervisor is not asked again: they may have been carried out, and twice is another thing."""
OPERATIONS: dict[str, Operation[Any, Any]] = {
    row.name: row for row in list(globals().values()) if isinstance(row, Operation)
}


@dataclass(frozen=True, slots=True)
class QueriesAsked:
    """Code has asked queries; many come in several events."""

    queries: tuple[AskedQuery, ...]


@dataclass(frozen=True, slots=True)
class WaitsFor:
    """The running cell waits for the answers of these queries; without any it goes on."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswersAssigned:
    """A cell of which no caller hears has given answers to queries itself."""

    given: GivenAnswers


@dataclass(frozen=True, slots=True)
class CellEnded:
    """A cell has ended of which no caller hears."""

    cell: CellNote


@dataclass(frozen=True, slots=True)
class AttachmentChanged:
    """A front end has opened the attachment, or left it."""

    attachment: str
    open: bool


@dataclass(frozen=True, slots=True)
class Recovered:
    """Another process has taken over, ``anew`` or without ``lost`` cells; it may not know what the budget's use is."""

    anew: bool = False
    lost: int = 0


@dataclass(frozen=True, slots=True)
class LowMemory:
    """The machine is short of memory, and the kernel idle: save it if it can come back, and end it."""


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
