"""A run as JSON lines, in the form that the visualiser of the reference implementation opens.

The first line has the settings of the run, each further one a turn: the messages to the model, its reply, and for each
block of code its output and queries. A query that was answered by a run contains that run, as the logger of the
reference implementation writes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, field, replace
from datetime import UTC, datetime

from rlm_client.models.interface import ChatMessage
from rlm_client.rlm.loop import Solution
from rlm_client.rlm.replies import final_of
from rlm_client.rlm.workspace import CodeOutcome, ModelAnswer, ModelTurn
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.session_record import RecordedVariable

__all__ = [
    "BlockLine",
    "CallLine",
    "ChildLine",
    "ModelUsage",
    "ResultLine",
    "RunLine",
    "TurnLine",
    "UsageSummary",
    "as_json_lines",
    "call",
    "iteration",
    "metadata",
    "moment",
    "usage",
    "written",
]


@dataclass(frozen=True)
class ModelUsage:
    """The usage of a model, with the cost in US dollars."""

    total_input_tokens: int
    total_output_tokens: int
    total_cost: float


@dataclass(frozen=True)
class UsageSummary:
    """The usage of models, by their names."""

    model_usage_summaries: dict[str, ModelUsage]
    total_cost: float


@dataclass(frozen=True)
class CallLine:
    """A query of code with its answer; without one ``error`` is the reason. ``metadata`` is the run that it made."""

    root_model: str | None
    prompt: str
    response: str
    prompt_tokens: int
    completion_tokens: int
    execution_time: float
    usage_summary: UsageSummary
    metadata: ChildLine | None
    error: str | None


@dataclass(frozen=True)
class ResultLine:
    """The result of a block of code. ``locals`` are variables with previews of their values."""

    stdout: str
    stderr: str
    execution_time: float
    rlm_calls: list[CallLine]
    locals: dict[str, str] = field(default_factory=dict)
    final_answer: str | None = None


@dataclass(frozen=True)
class BlockLine:
    """A block of code."""

    code: str
    result: ResultLine


@dataclass(frozen=True, kw_only=True)
class TurnLine:
    """A turn; ``prompt`` has all messages to the model, including those that were folded later."""

    type: str = "iteration"
    iteration: int
    timestamp: str
    prompt: list[ChatMessage]
    response: str
    code_blocks: list[BlockLine]
    final_answer: str | None
    iteration_time: float
    usage_summary: UsageSummary | None


@dataclass(frozen=True, kw_only=True)
class RunLine:
    """A run as a whole; ``stopped`` is why it ended without an answer."""

    type: str = "metadata"
    timestamp: str
    root_model: str | None
    max_depth: int | None
    max_iterations: int | None
    backend: str = "rlm-kernel"
    backend_kwargs: dict[str, str | None]
    environment_type: str = "rlm-kernel"
    environment_kwargs: dict[str, str]
    other_backends: None = None
    stopped: str | None


@dataclass(frozen=True)
class ChildLine:
    """A run that code started."""

    run_metadata: RunLine
    iterations: list[TurnLine]


_LEFT_OUT = frozenset({"stopped", "metadata", "error"})
"""Fields that are omitted if they are empty."""


def as_json_lines(solution: Solution) -> str:
    """Return the whole run."""
    return written([_run(solution), *_turns(solution)])


def metadata(
    session: str,
    began: float,
    model: str | None,
    *,
    turns: int | None = None,
    depth: int | None = None,
    stopped: str | None = None,
) -> RunLine:
    """Return the line about the run as a whole."""
    return RunLine(
        timestamp=moment(began),
        root_model=model,
        max_depth=depth,
        max_iterations=turns,
        backend_kwargs={"model_name": model},
        environment_kwargs={"session": session},
        stopped=stopped,
    )


def iteration(
    *,
    number: int,
    began: float,
    seconds: float,
    prompt: list[ChatMessage],
    reply: str,
    blocks: list[BlockLine],
    final: str | None,
    used: UsageSummary | None = None,
    variables: Iterable[RecordedVariable] = (),
) -> TurnLine:
    """Return the line about one turn; the ``variables`` after it stand at its last block."""
    if blocks:
        *before, last = blocks
        given = final if final_of(reply) is None else None  # else the reply itself gives it
        held = {variable.name: variable.preview for variable in variables}
        blocks = [*before, replace(last, result=replace(last.result, locals=held, final_answer=given))]
    return TurnLine(
        iteration=number,
        timestamp=moment(began),
        prompt=prompt,
        response=reply,
        code_blocks=blocks,
        final_answer=final,
        iteration_time=round(seconds, 3),
        usage_summary=used,
    )


def call(
    prompt: str,
    answer: str | None,
    error: str | None,
    model: str | None,
    *,
    given: int = 0,
    made: int = 0,
    cost: float = 0.0,
    seconds: float = 0.0,
    child: ChildLine | None = None,
) -> CallLine:
    """Return one query of code with its answer, or the reason why there is none."""
    return CallLine(
        root_model=model,
        prompt=prompt,
        response=f"Error: {error}" if answer is None else answer,
        prompt_tokens=given,
        completion_tokens=made,
        execution_time=round(seconds, 3),
        usage_summary=usage(model, given, made, cost),
        metadata=child,
        error=error if answer is None else None,
    )


def usage(model: str | None, given: int, made: int, cost: float) -> UsageSummary:
    """Return the usage of an answer."""
    return UsageSummary({model or "unknown": ModelUsage(given, made, cost)}, cost)


def written(lines: Iterable[RunLine | TurnLine]) -> str:
    """Return the lines as ASCII text, so that no reader finds a line break within a text."""
    return "".join(json.dumps(asdict(line, dict_factory=_fields)) + "\n" for line in lines)


def moment(seconds: float) -> str:
    """Return a time of the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in pairs if value is not None or name not in _LEFT_OUT}


def _run(solution: Solution) -> RunLine:
    limits = solution.budget.limits
    return metadata(
        began=solution.turns[0].began if solution.turns else time.time(),
        model=solution.model,
        turns=limits.turns,
        depth=limits.depth,
        session=solution.session,
        stopped=solution.reason or None,
    )


def _turns(solution: Solution) -> Iterator[TurnLine]:
    prompt: list[ChatMessage] = []
    for turn in solution.turns:
        prompt += [{**message} for message in turn.said]
        yield _turn(turn, list(prompt), solution.children)
        prompt.append({"role": "assistant", "content": turn.reply.text})


def _turn(turn: ModelTurn, prompt: list[ChatMessage], children: Sequence[Solution]) -> TurnLine:
    used = turn.reply.usage
    return iteration(
        number=turn.number,
        began=turn.began,
        seconds=turn.seconds,
        prompt=prompt,
        reply=turn.reply.text,
        blocks=[_block(outcome, children) for outcome in turn.outcomes],
        final=turn.final,
        used=usage(turn.reply.model, used.input_tokens, used.output_tokens, used.cost),
        variables=turn.variables,
    )


def _block(outcome: CodeOutcome, children: Sequence[Solution]) -> BlockLine:
    stdout = "\n".join(part for part in (outcome.stdout, outcome.result) if part)
    stderr = "\n".join(part for part in (outcome.stderr, outcome.error) if part)
    calls = [_call(answer, children) for answer in outcome.answers]
    return BlockLine(outcome.code, ResultLine(stdout, stderr, round(outcome.seconds, 3), calls))


def _call(answer: ModelAnswer, children: Sequence[Solution]) -> CallLine:
    child = next((one for one in children if one.session == answer.child), None)
    return call(
        answer.query.prompt,
        answer.text,
        answer.error,
        answer.model or answer.query.model,
        given=answer.input_tokens,
        made=answer.output_tokens,
        cost=answer.cost,
        seconds=answer.seconds,
        child=None if child is None else ChildLine(_run(child), list(_turns(child))),
    )
