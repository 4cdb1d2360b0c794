"""What the supervisor asks of a worker between two cells, and the worker's answers.

A request names the type of its reply; all travel under one tag and are answered in order.
The answer comes from a process that runs hostile code, so the caller reads it strictly, with `read_reply`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar, cast

from rlm_ipc import framing
from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.errors import ProtocolError
from rlm_ipc.kernel_reports import BudgetUsed, QueryOutcome
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json, JsonObject, plain, read, reply_type

Reply = TypeVar("Reply")


class Request(Generic[Reply]):
    """Base of the requests; ``Reply`` is the type of the answer."""

    __slots__ = ()
    OP: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Done:
    """The reply to a request that returns nothing."""


@dataclass(frozen=True, slots=True)
class Bind(Request[Done]):
    """Bind a context to a global: the descriptors sent with it are a stored text that ``header`` describes."""

    OP: ClassVar[str] = "bind"
    name: str
    header: dict[str, Json]
    type: str
    metadata: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Unbind(Request[Done]):
    """Unbind a context."""

    OP: ClassVar[str] = "unbind"
    name: str


@dataclass(frozen=True, slots=True)
class Shadowed(Request["ShadowedNames"]):
    """Ask which contexts' names mean something else."""

    OP: ClassVar[str] = "shadowed"


@dataclass(frozen=True, slots=True)
class ShadowedNames:
    """Contexts whose names mean something else in code."""

    shadowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LookAtThreads(Request["OtherThreads"]):
    """Ask which threads exist besides the one that serves."""

    OP: ClassVar[str] = "threads"


@dataclass(frozen=True, slots=True)
class OtherThreads:
    """Threads as their kernel describes them: ``names`` of those that a copy lacks, and the number in ``libraries``.

    ``stuck`` is the library whose threads keep the kernel from being copied, if there is one.
    """

    names: tuple[str, ...] = ()
    libraries: int = 0
    stuck: str = ""


@dataclass(frozen=True, slots=True)
class Variables(Request["VariableRows"]):
    """Describe the user's globals."""

    OP: ClassVar[str] = "variables"


@dataclass(frozen=True, slots=True)
class VariableRow:
    """A variable as its kernel describes it, possibly untruly. One that ``shadows`` has the name of a context.

    ``size`` is in bytes; strings and containers have a ``line_count``.
    """

    name: str
    type: str
    size: int
    preview: str
    line_count: int | None = None
    shadows: bool = False


@dataclass(frozen=True, slots=True)
class VariableRows:
    """A row for each variable."""

    variables: tuple[VariableRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Peek(Request["Lines"]):
    """Show lines of a variable: the first whole ones that fit into ``max_chars``, or ``every`` one, the longest cut."""

    OP: ClassVar[str] = "peek"
    name: str
    offset: int
    limit: int
    max_chars: int
    every: bool


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines as shown, the number of characters in each, and the number of lines in total."""

    total_lines: int
    lines: tuple[str, ...]
    chars: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scan(Request["FoundLines"]):
    """Search the lines of a variable; the other fields are those of `rlm_contexts.searches.SearchRequest`."""

    OP: ClassVar[str] = "scan"
    name: str
    pattern: str
    context_lines: int
    max_matches: int
    seconds: float
    line_chars: int
    start_line: int = 0
    case_sensitive: bool = False
    fixed: bool = False
    word: bool = False
    invert: bool = False


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A matching line; see `rlm_contexts.searches.LineMatch`."""

    line: int
    text: str
    context: tuple[str, ...]
    chars: int
    context_cut: bool


@dataclass(frozen=True, slots=True)
class FoundLines:
    """The result of a search; see `rlm_contexts.searches.ScanResult`."""

    matches: tuple[FoundLine, ...]
    truncated: bool
    total: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Export(Request["Exported"]):
    """Return a variable as text, up to ``max_bytes`` of UTF-8."""

    OP: ClassVar[str] = "export"
    name: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Exported:
    """The number of bytes in the text sent with it."""

    bytes: int


@dataclass(frozen=True, slots=True)
class Resolve(Request["KnownQueries"]):
    """News about queries, between two cells; see `Resolved`."""

    OP: ClassVar[str] = "resolve"
    answers: dict[str, QueryOutcome] = field(default_factory=dict)
    used: BudgetUsed | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class KnownQueries:
    """The ids for which the session has a placeholder."""

    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Save(Request["HandedOut"]):
    """Return an image of variables: of the ``names``, or of all; ``room`` bytes of it, from ``at`` on."""

    OP: ClassVar[str] = "save"
    names: tuple[str, ...] | None
    at: int
    room: int


@dataclass(frozen=True, slots=True)
class SavedRow:
    """A variable in an image: whether it is ``code`` (a function, class or module), or the text of a context."""

    name: str
    type: str
    code: bool
    content_of: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of an image, and their hash (`variable_images.hash_of`)."""

    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class HandedOut:
    """The contents of an image of ``size`` bytes, and what ``failed``; ``digest`` is a hash of the image.

    ``notes`` say what an object in it loses, such as the contents of a cache. Where code shadows a context, its
    variable is in the image, and the context is ``shadowed``. ``pieces`` are the parts of the image; only the first
    answer about an image has them.
    """

    variables: tuple[SavedRow, ...]
    failed: tuple[NotKept, ...]
    notes: tuple[NotKept, ...]
    shadowed: tuple[str, ...]
    size: int
    digest: str
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class Digest(Request["Digests"]):
    """Return a hash of an image of these variables, and with ``each`` a hash of each variable's value."""

    OP: ClassVar[str] = "digest"
    names: tuple[str, ...]
    each: bool


@dataclass(frozen=True, slots=True)
class Digests:
    """The hash of all, or the reason why there is none; and by name an identity of each value."""

    whole: str
    each: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Restore(Request["PutBack"]):
    """Bind the variables of images of these sizes. They are in the file sent with it, one after the other.

    Contexts keep their names, except those that variables ``shadow``.
    """

    OP: ClassVar[str] = "restore"
    images: tuple[int, ...]
    shadow: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PutBack:
    """What was restored, and what was not; ``broken`` is the variable at which reading stopped."""

    restored: tuple[str, ...]
    failed: tuple[NotKept, ...]
    broken: str = ""


REQUESTS: Mapping[str, type[Request[Any]]] = {
    kind.OP: kind
    for kind in list(globals().values())
    if isinstance(kind, type) and issubclass(kind, Request) and kind is not Request
}
"""Every request by its name on the wire."""
REQUEST = b"X"
"""The tag of every request."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed: the class of the error, its message, and its attributes."""

    error: str
    message: str
    details: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a request: the fields of its reply, or a failure. Further parts are bytes that belong to it."""

    TAG: ClassVar[bytes] = b"x"
    content: dict[str, Json] = field(default_factory=dict)
    failure: Failure | None = None


def encode_request(request: Request[Any]) -> tuple[bytes, bytes]:
    """Return the tag of requests, and the first part of this one."""
    return REQUEST, framing.json_part(request_json(request))


def request_json(request: Request[Any]) -> JsonObject:
    """Return the request as a JSON object; `read_request` reads it."""
    return {"op": request.OP, **plain(request)}


def read_request(content: object) -> Request[Any]:
    """Return the request in a JSON object, which names it as its ``op``.

    Raises:
        ProtocolError: there is no such request, or it has other fields.
    """
    if not isinstance(content, dict) or not isinstance(op := content.get("op"), str):
        raise ProtocolError("a request must name its operation in `op`")
    kind = REQUESTS.get(op)
    if kind is None:
        raise ProtocolError(f"a kernel has no request {op!r}; there are {', '.join(sorted(REQUESTS))}")
    return read(kind, {name: value for name, value in content.items() if name != "op"})


def read_reply(request: Request[Reply], content: JsonObject) -> Reply:
    """Return the reply to a request.

    Raises:
        ProtocolError: the kernel answered with something else.
    """
    return cast("Reply", read(reply_type(type(request)), content))
