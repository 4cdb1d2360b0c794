"""A run as JSON lines, in the form that the visualiser of the reference implementation opens.

The first line says how the run was set up (``type`` ``metadata``), each further one is a turn (``iteration``): what the
model was told, what it replied, and for each block of code its output and the queries that it asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from rlm_client.models.interface import ChatMessage
from rlm_client.rlm.loop import Solution
from rlm_client.rlm.workspace import CodeOutcome, ModelAnswer, ModelTurn
from rlm_ipc.messages import JsonObject

__all__ = ["as_json_lines", "call", "code_block", "iteration", "metadata", "written"]


def as_json_lines(solution: Solution) -> str:
    """Return the whole run."""
    limits = solution.budget.limits
    first = metadata(
        began=solution.turns[0].began if solution.turns else time.time(),
        model=solution.model,
        turns=limits.turns,
        depth=limits.depth,
        session=solution.session,
        stopped=solution.reason or None,
    )
    prompt: list[ChatMessage] = []
    lines = [first]
    for turn in solution.turns:
        prompt += [{**message} for message in turn.said]
        lines.append(_turn(turn, list(prompt)))
        prompt.append({"role": "assistant", "content": turn.reply.text})
    return written(lines)


def metadata(
    session: str,
    began: float,
    model: str | None,
    *,
    turns: int | None = None,
    depth: int | None = None,
    stopped: str | None = None,
) -> JsonObject:
    """Return the line about the run as a whole; ``stopped`` is why it ended without an answer."""
    return {
        "type": "metadata",
        "timestamp": moment(began),
        "root_model": model,
        "max_depth": depth,
        "max_iterations": turns,
        "backend": "rlm-kernel",
        "backend_kwargs": {"model_name": model},
        "environment_type": "rlm-kernel",
        "environment_kwargs": {"session": session},
        "other_backends": None,
        **({"stopped": stopped} if stopped is not None else {}),
    }


def iteration(
    *,
    number: int,
    began: float,
    seconds: float,
    prompt: list[ChatMessage],
    reply: str,
    blocks: list[JsonObject],
    final: str | None,
) -> JsonObject:
    """Return the line about one turn; ``prompt`` is all that the model has been told, with what was folded since."""
    return {
        "type": "iteration",
        "iteration": number,
        "timestamp": moment(began),
        "prompt": prompt,
        "response": reply,
        "code_blocks": blocks,
        "final_answer": final,
        "iteration_time": round(seconds, 3),
    }


def code_block(code: str, stdout: str, stderr: str, seconds: float, calls: list[JsonObject]) -> JsonObject:
    """Return one block of code with what came of it."""
    result = {
        "stdout": stdout,
        "stderr": stderr,
        "locals": {},
        "execution_time": round(seconds, 3),
        "rlm_calls": calls,
        "final_answer": None,
    }
    return {"code": code, "result": result}


def call(
    prompt: str,
    answer: str | None,
    error: str | None,
    model: str | None,
    *,
    given: int = 0,
    made: int = 0,
    seconds: float = 0.0,
) -> JsonObject:
    """Return one query of code with its answer or, when there is none, the reason."""
    return {
        "root_model": model,
        "prompt": prompt,
        "response": f"Error: {error}" if answer is None else answer,
        "prompt_tokens": given,
        "completion_tokens": made,
        "execution_time": round(seconds, 3),
    }


def written(lines: Iterable[JsonObject]) -> str:
    """Return the lines as text, all of it ASCII: whatever a text holds, no reader sees the end of a line in it."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def moment(seconds: float) -> str:
    """Return a time of the epoch as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _turn(turn: ModelTurn, prompt: list[ChatMessage]) -> JsonObject:
    blocks = [_block(outcome) for outcome in turn.outcomes]
    return iteration(
        number=turn.number,
        began=turn.began,
        seconds=turn.seconds,
        prompt=prompt,
        reply=turn.reply.text,
        blocks=blocks,
        final=turn.final,
    )


def _block(outcome: CodeOutcome) -> JsonObject:
    stdout = "\n".join(part for part in (outcome.stdout, outcome.result) if part)
    stderr = "\n".join(part for part in (outcome.stderr, outcome.error) if part)
    return code_block(outcome.code, stdout, stderr, outcome.seconds, [_call(answer) for answer in outcome.answers])


def _call(answer: ModelAnswer) -> JsonObject:
    query = answer.query
    used = (answer.input_tokens, answer.output_tokens, answer.seconds)
    return call(query.prompt, answer.text, answer.error, query.model, given=used[0], made=used[1], seconds=used[2])
