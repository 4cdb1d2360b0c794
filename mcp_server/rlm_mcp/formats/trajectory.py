"""A session's record as JSON lines that the visualiser of the reference implementation opens.

A turn of a model that worked by itself is an iteration with the code that ran in it; a cell that an agent or a person
sent is an iteration of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlm_client.models.interface import ChatMessage
from rlm_client.rlm import trajectory
from rlm_client.rlm.prompts import is_set_up
from rlm_client.rlm.trajectory import BlockLine, CallLine, ResultLine, TurnLine
from rlm_ipc.displays import unstyled
from rlm_ipc.session_record import RecordedCell, RecordedQuery, RecordedTurn, SessionRecord
from rlm_mcp.formats.notebook import parted

__all__ = ["as_json_lines"]


def as_json_lines(record: SessionRecord) -> str:
    """Return the session, one line for each turn or cell in their order, after a line about the whole."""
    cells = [cell for cell in record.cells if not is_set_up(cell.code)]
    taken: set[int] = set()
    timed: list[tuple[float, TurnLine]] = []
    prompt: list[ChatMessage] = []
    for turn in record.turns:
        if turn.said and turn.said[0].role == "system":  # a new run
            prompt = []
        prompt += [{"role": _role(message.role), "content": message.content} for message in turn.said]
        own = [cell for cell in cells if turn.started_at <= cell.started_at <= turn.ended_at]
        taken.update(cell.number for cell in own)
        timed.append((turn.started_at, _turn(turn, list(prompt), own)))
        prompt.append({"role": "assistant", "content": turn.reply})
    timed += [(cell.started_at, _alone(cell)) for cell in cells if cell.number not in taken]
    timed.sort(key=lambda pair: pair[0])
    began = timed[0][0] if timed else 0.0
    first = trajectory.metadata(record.session, began, record.turns[0].model if record.turns else None)
    return trajectory.written([first, *(replace(line, iteration=n) for n, (_, line) in enumerate(timed, 1))])


def _turn(turn: RecordedTurn, prompt: list[ChatMessage], cells: list[RecordedCell]) -> TurnLine:
    return trajectory.iteration(
        number=0,
        began=turn.started_at,
        seconds=turn.ended_at - turn.started_at,
        prompt=prompt,
        reply=turn.reply,
        blocks=[_block(cell) for cell in cells],
        final=turn.final,
        used=trajectory.usage(turn.model, turn.input_tokens, turn.output_tokens, turn.cost),
        variables=turn.variables,
    )


def _alone(cell: RecordedCell) -> TurnLine:
    return trajectory.iteration(
        number=0,
        began=cell.started_at,
        seconds=cell.ended_at - cell.started_at,
        prompt=[{"role": "user", "content": f"A cell of the session, sent by the {cell.author}."}],
        reply=f"```repl\n{cell.code}\n```",
        blocks=[_block(cell)],
        final=None,
    )


def _block(cell: RecordedCell) -> BlockLine:
    stdout, stderr = (cell.output, "") if cell.status == "ok" else ("", cell.output)
    if cell.status == "error":
        stdout, error = parted(cell.output)
        stderr = unstyled("\n".join(cell.traceback)) or ": ".join(error)
    seconds = round(cell.ended_at - cell.started_at, 3)
    return BlockLine(cell.code, ResultLine(stdout, stderr, seconds, [_call(query) for query in cell.queries]))


def _call(query: RecordedQuery) -> CallLine:
    reason = query.error or f"no answer, the query is {query.state}"
    return trajectory.call(
        query.prompt,
        query.answer,
        reason,
        query.model,
        given=query.input_tokens,
        made=query.output_tokens,
        cost=query.cost,
        seconds=query.seconds,
    )


def _role(role: str) -> Any:
    return role if role in {"system", "user", "assistant"} else "user"
