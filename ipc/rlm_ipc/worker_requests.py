"""What the supervisor asks of a worker between two cells, and what it is answered.

A request is one of `REQUESTS`; all travel under one tag and are answered in their order. The answer comes from a
process that runs hostile code: whoever has asked reads the reply that he expects from it, strictly.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from rlm_ipc import framing
from rlm_ipc.errors import ProtocolError
from rlm_ipc.kernel_reports import BudgetUsed, QueryOutcome
from rlm_ipc.messages import Json, plain, read


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a context to a global: the descriptors with it are a stored text that ``header`` describes."""

    OP: ClassVar[str] = "bind"
    name: str
    header: dict[str, Json]
    type: str
    metadata: dict[str, Json]


@dataclass(frozen=True, slots=True)
class Unbind:
    """Unbind a context."""

    OP: ClassVar[str] = "unbind"
    name: str


@dataclass(frozen=True, slots=True)
class Shadowed:
    """Which contexts' names mean something else? Answer: `ShadowedNames`."""

    OP: ClassVar[str] = "shadowed"


@dataclass(frozen=True, slots=True)
class ShadowedNames:
    """Contexts whose names mean something else in code."""

    shadowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variables:
    """Describe the user's globals. Answer: `VariableRows`."""

    OP: ClassVar[str] = "variables"


@dataclass(frozen=True, slots=True)
class VariableRows:
    """A row for each: ``name``, ``type``, ``size`` and what else a variable has."""

    variables: tuple[dict[str, Json], ...] = ()


@dataclass(frozen=True, slots=True)
class Peek:
    """Show lines of a variable."""

    OP: ClassVar[str] = "peek"
    name: str
    offset: int
    limit: int
    max_chars: int
    every: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """Search the lines of a variable; ``options`` are further arguments of `rlm_contexts.search.scan.scan`."""

    OP: ClassVar[str] = "scan"
    name: str
    pattern: str
    context_lines: int
    max_matches: int
    seconds: float
    options: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Export:
    """Hand out a variable as text, at most ``max_bytes`` of UTF-8."""

    OP: ClassVar[str] = "export"
    name: str
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Resolve:
    """News of queries, between two cells; see `Resolved`. Answer: `KnownQueries`."""

    OP: ClassVar[str] = "resolve"
    answers: dict[str, QueryOutcome] = field(default_factory=dict)
    used: BudgetUsed | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class KnownQueries:
    """The ids for which the session has a placeholder."""

    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Save:
    """Hand out variables as bytes, and sources as text: the ``names``, or all.

    One has at most ``limit`` bytes, all together have ``room``.
    """

    OP: ClassVar[str] = "save"
    names: tuple[str, ...] | None
    limit: int
    room: int


@dataclass(frozen=True, slots=True)
class SavedSource:
    """The text of a function, a class or an import."""

    name: str
    source: str


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A variable as so many bytes, or the content of a context."""

    name: str
    bytes: int
    content_of: str | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """Run sources and read variables again. The bytes are in the file that comes with it, one after the other.

    Contexts keep their names, except for those that variables ``shadow``.
    """

    OP: ClassVar[str] = "restore"
    code: tuple[SavedSource, ...]
    variables: tuple[SavedValue, ...]
    shadow: tuple[str, ...] = ()


Request = (
    Bind | Unbind | Shadowed | Variables | Peek | Scan | Export | Resolve | Save | Restore
)  # fmt: skip
REQUESTS: dict[str, type[Request]] = {
    kind.OP: kind for kind in (Bind, Unbind, Shadowed, Variables, Peek, Scan, Export, Resolve, Save, Restore)
}
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


def encode_request(request: Request) -> tuple[bytes, bytes]:
    """The tag of requests, and the first part of this one."""
    return REQUEST, framing.json_part(request_json(request))


def request_json(request: Request) -> dict[str, Json]:
    """The request as a JSON object; `read_request` reads it."""
    return {"op": request.OP, **plain(request)}


def read_request(content: object) -> Request:
    """The request in a JSON object, which names it as its ``op``.

    Raises:
        ProtocolError: there is no such request, or it has other fields.
    """
    if not isinstance(content, dict) or not isinstance(op := content.get("op"), str):
        raise ProtocolError("a request must name its operation in `op`")
    kind = REQUESTS.get(op)
    if kind is None:
        raise ProtocolError(f"a kernel has no request {op!r}; there are {', '.join(sorted(REQUESTS))}")
    return read(kind, {name: value for name, value in content.items() if name != "op"})
