"""The arguments of every tool, as pydantic models that refuse unknown arguments.

The service clamps numbers above a cap and does not refuse them: agents ask for "everything". Objects may also
arrive as JSON text, because several clients send them so.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from rlm_client.calls import (
    Change,
    Children,
    Detail,
    LockField,
    LockPriority,
    LockRole,
    Outcome,
    RuleSet,
    ScanFlag,
    WorkVerb,
)
from rlm_ipc.json_size import has_too_many_values

MOST_CELLS = 100
"""Cells of one batch."""
LONGEST_METADATA = 16_384
"""Characters of a context's metadata as JSON."""


def _parsed(value: Any) -> Any:
    """Parse an object or list that came as JSON text."""
    if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
        try:
            return value if has_too_many_values(value.encode("utf-8", "replace")) else json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse numbers that JSON cannot represent."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        raise ValueError("JSON has no NaN or Infinity; send null, or the number as a string") from None
    return value


def _listed(value: Any) -> Any:
    """Wrap a single string in a list."""
    parsed = _parsed(value)
    return [parsed] if isinstance(parsed, str) else parsed


JsonObject = Annotated[dict[str, Any], BeforeValidator(_parsed), AfterValidator(_finite)]
Names = Annotated[list[str], BeforeValidator(_listed)]

Goals = Annotated[
    list[str | dict[str, Any]],
    BeforeValidator(_listed),
    WithJsonSchema({"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "object"}]}}),
]

Paths = Annotated[list[str], BeforeValidator(_listed), WithJsonSchema({"type": "string"})]
"""One path or pattern, or a list of them; the schema, which costs tokens on every turn, shows the usual form."""


class Arguments(BaseModel):
    """The argument of every tool: the session that the call is for."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=True)

    session: str | None = None


class LoadContext(Arguments):
    """Arguments of load_context."""

    name: str
    content: str | None = None
    path: Paths | None = None
    variable: str | None = None
    content_type: Annotated[str, Field(max_length=40)] = "custom"
    metadata: JsonObject = {}

    @model_validator(mode="after")
    def _one_source(self) -> LoadContext:
        given = [name for name in ("content", "path", "variable") if getattr(self, name) is not None]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise ValueError(f"give exactly one of content, path and variable (got {got})")
        if self.path == []:
            raise ValueError("path is empty; name a file, a directory or a pattern")
        if len(json.dumps(self.metadata, default=str)) > LONGEST_METADATA:
            raise ValueError(f"metadata is longer than {LONGEST_METADATA:,} characters; load it as a context instead")
        return self


class Peek(Arguments):
    """Arguments of peek."""

    name: str
    offset: int = 0
    limit: Annotated[int | None, Field(ge=1)] = None
    max_chars: Annotated[int | None, Field(ge=1)] = None


class Scan(Arguments):
    """Arguments of scan."""

    name: str
    pattern: Annotated[str, Field(min_length=1, max_length=10_000)]
    context_lines: Annotated[int, Field(ge=0)] = 0
    max_matches: Annotated[int, Field(ge=1)] = 50
    flags: Annotated[list[ScanFlag], BeforeValidator(_listed), Field(default_factory=list)]
    start_line: Annotated[int | None, Field(ge=0)] = None


class Cite(Arguments):
    """Arguments of cite."""

    name: str
    lines: Annotated[str | int, WithJsonSchema({"type": "string"})]


class CheckCitation(Arguments):
    """Arguments of check_citation."""

    name: str
    quote: Annotated[str, Field(min_length=1, max_length=100_000)]
    lines: Annotated[str | int | None, WithJsonSchema({"type": "string"})] = None
    hash: str | None = None


class QueryArguments(Arguments):
    """Arguments of query."""

    name: Paths
    sql: Annotated[str, Field(min_length=1, max_length=100_000)]


class NoArguments(Arguments):
    """Arguments of a tool that takes only the session."""


class Named(Arguments):
    """Arguments of a tool that takes only a name."""

    name: str


class RegisterHandle(Arguments):
    """Arguments of register_handle."""

    name: str
    content_type: Annotated[str | None, Field(max_length=40)] = None
    share_with: Names | None = None


class ResolveHandle(Arguments):
    """Arguments of resolve_handle."""

    handle: str


class EvalCode(Arguments):
    """Arguments of eval_code: one cell, or a batch of them."""

    code: str | None = None
    cells: Annotated[Names, Field(default_factory=list, max_length=MOST_CELLS)]

    @model_validator(mode="after")
    def _code_or_cells(self) -> EvalCode:
        if (self.code is None) is not bool(self.cells):
            raise ValueError("give code, or several cells, which run one after the other")
        return self


class AnswerQueries(Arguments):
    """Arguments of answer_queries: an object, a list of ``{"id", "answer" or "error"}``, or a list in order.

    Each item is checked when it is stored, so that a bad one does not stop the others.
    """

    answers: Annotated[
        dict[str, Any] | list[Any],
        BeforeValidator(_parsed),
        WithJsonSchema({"type": "object", "description": '{id: text or {"error": text}}'}),
    ]


class Wait(Arguments):
    """Arguments of wait."""

    run: str | None = None


class ForkSession(Arguments):
    """Arguments of fork_session. With ``goal`` it is a push."""

    goal: str | None = None
    name: Annotated[str | None, Field(max_length=128)] = None
    policy: Annotated[str | None, Field(max_length=64)] = None


class PlanGoal(Arguments):
    """Arguments of plan. Each of ``children`` is a string, or an object with a goal and its own children."""

    goal: str
    parent: str | None = None
    children: Goals = []


class Push(Arguments):
    """Arguments of push. ``goal`` is a string, or the id of a planned frame."""

    goal: str
    parent: str | None = None
    fork: bool = True
    policy: Annotated[str | None, Field(max_length=64)] = None


class Pop(Arguments):
    """Arguments of pop. The default ``id`` is that of the current frame."""

    id: str | None = None
    status: Outcome = "completed"
    summary: str = ""
    artifacts: Names = []
    decisions: Names = []
    hand_over: Names = []
    children: Children = "refuse"


class ShowFrame(Arguments):
    """Arguments of frame. The default ``id`` is that of the current frame."""

    id: str | None = None
    do: Change | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _of_one(self) -> ShowFrame:
        if self.do is not None and self.note is not None:
            raise ValueError("give do or note, not both")
        if self.do not in (None, "turns") and self.id is None:
            raise ValueError(f"{self.do} needs the id of a frame")
        return self


class WorkArguments(Arguments):
    """Arguments of work. The fields of ``data`` depend on the verb."""

    do: WorkVerb = "next"
    id: str | None = None
    data: JsonObject = {}
    fields: Detail | None = None
    wait: bool = False
    holder: Annotated[str | None, Field(max_length=200)] = None


class HandOffArguments(Arguments):
    """Arguments of handoff. The tool writes ``data``; without it, it reads."""

    id: str
    data: JsonObject = {}
    details: bool = False


class LockArguments(Arguments):
    """Arguments of lock. ``map`` is the size of a map in tokens; ``frame`` is an id, or any name of a task."""

    lock_id: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    priority: LockPriority | None = None
    fields: Annotated[list[LockField] | None, BeforeValidator(_listed)] = None
    role: LockRole | None = None
    agent: Annotated[str | None, Field(max_length=200)] = None
    frame: Annotated[str | None, Field(max_length=200)] = None
    map: Annotated[int | None, Field(ge=100)] = None
    focus: Annotated[Names, Field(max_length=100)] = []
    about: Annotated[str, Field(max_length=2000)] = ""
    path: Annotated[str, Field(max_length=4000)] = ""
    rules: RuleSet = "full"


class Navigate(Arguments):
    """Arguments of flame_navigate."""

    id: str


class RollbackArguments(Arguments):
    """Arguments of rollback."""

    cells: Annotated[int, Field(ge=1)] = 1


class LlmQuery(Arguments):
    """Arguments of llm_query."""

    prompt: str
    model: str | None = None


class LlmQueryBatched(Arguments):
    """Arguments of llm_query_batched."""

    prompts: Names
    model: str | None = None


Tier = Literal["core", "all", "compat"]
