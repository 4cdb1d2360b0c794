"""What the supervisor and a worker say to each other: one frozen dataclass for each message, one codec for all.

    supervisor → worker                          worker → supervisor
    RunCell                                      Shown*, Asked*, Waits*, CellDone
    Fork (the line of the child)                 Forked; the child says Handshake
    Start, StartFork                             Started (its fork gate)
    Resume                                       Resumed
    (a new line, after a supervisor's end)       Report, and what was said since the latest request began
    SAY_AGAIN                                    the same
    Resolved (to a cell that waits)              nothing
    a request: Bind, Unbind, Peek, …             Answered

Requests and their answers are in `worker_requests`. Jupyter's own messages, text that code writes, interrupts and
reports of faults have a tag each and no fields: they are raw parts.

A worker runs hostile code, so `decode` trusts nothing: it checks every field, and raises ProtocolError. Only the
standard library is used here, because the supervisor cannot afford more.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, Protocol, TypeVar

from rlm_ipc import framing
from rlm_ipc.errors import ProtocolError
from rlm_ipc.json_parts import json_in
from rlm_ipc.kernel_reports import BudgetUsed, GivenAnswers, QueryOutcome, WallState
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, JsonObject, read, sparse
from rlm_ipc.supervisor_core import Range

PROTOCOL = 1
"""The version of these messages, those of `worker_requests` and those of a session's file."""
SPEAKS = Range(PROTOCOL, PROTOCOL)
"""The versions of kernels that a supervisor of this version can drive."""

# worker ↔ supervisor: the channels of Jupyter (raw parts), and text that code writes
SHELL, CONTROL, IOPUB, STDIN = b"s", b"c", b"i", b"n"
STDOUT, STDERR = b"o", b"e"
CHANNELS = {SHELL: "shell", CONTROL: "control", STDIN: "stdin", IOPUB: "iopub"}
TAGS = {channel: tag for tag, channel in CHANNELS.items()}

# supervisor → worker: interrupt the next request; prepare the pages of the next cell. worker → supervisor: do not run
# the queued cells of this client; a fault of our own, in words
INTERRUPT, PREFAULT, ABORT, FATAL = b"I", b"P", b"A", b"!"
# supervisor → worker: repeat what you have said since your latest request began
SAY_AGAIN = b"Y"

# Limits of a query, in characters: the longest prompt, the longest name of a model, and the largest content of one
# message.
MAX_PROMPT = 4_000_000
MAX_MODEL = 200
PROMPTS_AT_ONCE = 1_000_000

MOST_QUERIES = 10**9
"""Numbers of queries are below it."""


# -- the life of a worker


class ForkState(enum.StrEnum):
    """What the child of a fork does."""

    READY = "ready"
    """It waits for its session."""
    WARM = "warm"
    """The same, and it prepares what does not depend on the session."""
    DORMANT = "dormant"
    """It is a checkpoint: it waits until it is resumed."""


@dataclass(frozen=True, slots=True)
class Fork:
    """Fork. The first descriptor is the child's lifeline; for a ``private`` child the second keeps its process numbers.

    A worker with threads refuses unless ``leave_threads``. An ``asleep`` child says nothing and touches no page until
    its first message; nor does the worker, where it can wait like that.
    """

    TAG: ClassVar[bytes] = b"F"
    state: ForkState
    leave_threads: bool = False
    asleep: bool = False
    private: bool = False


@dataclass(frozen=True, slots=True)
class Forked:
    """The child's number; or an ``error``, perhaps with the system's number for it, or ``threads`` in the way."""

    TAG: ClassVar[bytes] = b"f"
    pid: int | None = None
    error: str | None = None
    errno: int | None = None
    threads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Handshake:
    """A worker is ready.

    ``threads`` and ``tasks`` (their number) run in the process that it was forked from, not in it.
    """

    TAG: ClassVar[bytes] = b"h"
    pid: int | None = None
    threads: tuple[str, ...] = ()
    tasks: int = 0
    kernel_info: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Become a session. ``policy`` is JSON with real paths; nothing may open what is in the folders ``protect``.

    The descriptor sent with it is the tether: the system ends the session when nobody holds its other end any more.
    """

    TAG: ClassVar[bytes] = b"B"
    policy: str
    scratch: str
    workspace: str | None = None
    query_base: int = 0
    protect: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunCell:
    """Run a cell. ``watched`` says that a Jupyter client sees what it shows; ``serial`` is the request's number.

    A request of Jupyter's has the number in a last part of eight bytes.
    """

    TAG: ClassVar[bytes] = b"C"
    code: str
    store_history: bool = True
    watched: bool = False
    serial: int = 0


@dataclass(frozen=True, slots=True)
class StartFork:
    """Become another session, in a fork of one: under ``policy`` (JSON), inside the active ``walls``.

    Numbers of queries below ``query_base`` are used. The descriptor sent with it is a tether of its own.
    """

    TAG: ClassVar[bytes] = b"N"
    policy: str
    walls: dict[str, WallState]
    query_base: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The active walls; or the ``error`` for which the worker ends. A descriptor with it is its fork gate.

    ``dropped_modules`` are globals of the parent that the policy of a fork does not admit.
    """

    TAG: ClassVar[bytes] = b"b"
    walls: dict[str, WallState] = field(default_factory=dict)
    dropped_modules: tuple[str, ...] = ()
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Take over from the worker that died. Numbers of queries below ``query_base`` are used."""

    TAG: ClassVar[bytes] = b"W"
    query_base: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """The worker serves."""

    TAG: ClassVar[bytes] = b"w"


@dataclass(frozen=True, slots=True)
class Report:
    """The number of a worker's latest request; ``unsaid`` bytes of its text will not be repeated.

    A zygote reports ``kernel_info``.
    """

    TAG: ClassVar[bytes] = b"y"
    serial: int = 0
    unsaid: int = 0
    kernel_info: JsonObject = field(default_factory=dict)


# -- a cell


@dataclass(frozen=True, slots=True)
class Shown:
    """What a cell shows: the type, content and metadata of a Jupyter message. Further parts are its buffers."""

    TAG: ClassVar[bytes] = b"v"
    kind: str
    content: dict[str, Json]
    metadata: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """Queries, each an `AskedQuery` of `kernel_reports`: read one by one, so a bad one does not cost the others."""

    TAG: ClassVar[bytes] = b"q"
    queries: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Waits:
    """The cell waits for the answers to ``ids``; without any, it continues."""

    TAG: ClassVar[bytes] = b"a"
    ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolved:
    """News about queries, for a cell that waits.

    ``answers`` are outcomes by id, ``used`` is how much of the budget is used, if known, and ``late`` are ids whose
    time is up. ``refused`` says that the value that code assigned to ``llm_answers`` was not accepted.
    """

    TAG: ClassVar[bytes] = b"S"
    answers: dict[str, QueryOutcome] = field(default_factory=dict)
    used: BudgetUsed | None = None
    refused: bool = False
    late: tuple[str, ...] = ()


class CellStatus(enum.StrEnum):
    """How a cell ended."""

    OK = "ok"
    ERROR = "error"
    """Its code raised."""
    ABORTED = "aborted"
    """It never started."""


@dataclass(frozen=True, slots=True)
class CellReply:
    """The reply to a cell. The names and texts of its error are for people; session code chooses them."""

    status: CellStatus
    execution_count: int | None = None
    ename: str = ""
    evalue: str = ""
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefusedAttempts:
    """How many attempts the audit hook refused, and how many cells the compiler refused, since the last report."""

    audit: int = 0
    cells: int = 0


@dataclass(frozen=True, slots=True)
class CellDone:
    """A cell, or another request of Jupyter's, has ended.

    ``reply`` is that of a `RunCell`. ``defined`` are the names that it bound, ``shadowed`` the contexts whose names
    mean something else now, ``returned`` those that have their names again.
    """

    TAG: ClassVar[bytes] = b"d"
    reply: CellReply | None = None
    defined: tuple[str, ...] = ()
    shadowed: tuple[str, ...] = ()
    returned: tuple[str, ...] = ()
    refused: RefusedAttempts = RefusedAttempts()
    given: GivenAnswers | None = None


# -- the codec


class Tagged(Protocol):
    """A message with a tag of its own."""

    TAG: ClassVar[bytes]


M = TypeVar("M")


def encode(message: Tagged) -> tuple[bytes, bytes]:
    """Return the tag of a message and its first part."""
    return message.TAG, framing.json_part(sparse(message))


def decode(kind: type[M], part: bytes, parse: Callable[[bytes], Any] = json_in) -> M:
    """Return the message of that kind from a first part, read as JSON by ``parse``.

    Raises:
        ProtocolError: it is not such a message.
    """
    try:
        content = parse(part)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not a {kind.__name__}: {error}") from error
    return read(kind, content)
