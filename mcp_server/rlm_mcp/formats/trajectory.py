"""A session's record as JSON lines that the visualiser of the reference implementation opens.

A turn of a model that worked by itself is an iteration with the code that ran in it; a cell that an agent or a person
sent is an iteration of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlm_client.models.interface import ChatMessage
from rlm_client.rlm import trajectory
from rlm_client.rlm.prompts import is_set_up, task_of_child
from rlm_client.rlm.trajectory import BlockLine, CallLine, ChildLine, ResultLine, RunLine, TurnLine
from rlm_ipc.displays import unstyled
from rlm_ipc.session_record import RecordedCell, RecordedQuery, RecordedTurn, RunBelow, SessionRecord
from rlm_mcp.formats.model_runs import question_of
from rlm_mcp.formats.notebook import parted


def as_json_lines(record: SessionRecord, below: Sequence[RunBelow] = ()) -> str:
    """Return the session, one line for each turn or cell in their order, after a line about the whole.

    ``below`` are the runs that its code has started, and theirs: each stands at the query that it has answered.
    """
    written = _Written(record, below)
    return trajectory.written([written.first(), *written.turns()])


class _Written:
    """A session in lines; ``stopped`` is why its run has no answer."""

    def __init__(self, record: SessionRecord, below: Sequence[RunBelow], stopped: str | None = None) -> None:
        self._record, self._below, self._stopped = record, below, stopped
        own = [one.record for one in below if one.parent == record.session and one.record.turns]
        self._left = sorted(own, key=lambda child: child.turns[0].started_at)
        """The runs whose query was not found yet."""
        self._cells = [cell for cell in record.cells if not is_set_up(cell.code)]

    def first(self) -> RunLine:
        """Return the line about the whole."""
        turns, cells = self._record.turns, self._cells
        times = [*(turn.started_at for turn in turns), *(cell.started_at for cell in cells)]
        return trajectory.metadata(
            self._record.session, min(times, default=0.0), turns[0].model if turns else None, stopped=self._stopped
        )

    def turns(self) -> list[TurnLine]:
        """Return a line for each turn, and for each cell beside them."""
        cells = self._cells
        taken: set[int] = set()
        timed: list[tuple[float, TurnLine]] = []
        prompt: list[ChatMessage] = []
        for turn in self._record.turns:
            if turn.said and turn.said[0].role == "system":  # a new run
                prompt = []
            prompt += [{"role": _role(message.role), "content": message.content} for message in turn.said]
            own = [cell for cell in cells if turn.started_at <= cell.started_at <= turn.ended_at]
            taken.update(cell.number for cell in own)
            timed.append((turn.started_at, self._turn(turn, list(prompt), own)))
            prompt.append({"role": "assistant", "content": turn.reply})
        timed += [(cell.started_at, self._alone(cell)) for cell in cells if cell.number not in taken]
        timed.sort(key=lambda pair: pair[0])
        return [replace(line, iteration=number) for number, (_, line) in enumerate(timed, 1)]

    def _turn(self, turn: RecordedTurn, prompt: list[ChatMessage], cells: list[RecordedCell]) -> TurnLine:
        return trajectory.iteration(
            number=0,
            began=turn.started_at,
            seconds=turn.ended_at - turn.started_at,
            prompt=prompt,
            reply=turn.reply,
            blocks=[self._block(cell) for cell in cells],
            final=turn.final,
            used=trajectory.usage(turn.model, turn.input_tokens, turn.output_tokens, turn.cost),
            variables=turn.variables,
        )

    def _alone(self, cell: RecordedCell) -> TurnLine:
        return trajectory.iteration(
            number=0,
            began=cell.started_at,
            seconds=cell.ended_at - cell.started_at,
            prompt=[{"role": "user", "content": f"A cell of the session, sent by the {cell.author}."}],
            reply=f"```repl\n{cell.code}\n```",
            blocks=[self._block(cell)],
            final=None,
        )

    def _block(self, cell: RecordedCell) -> BlockLine:
        stdout, stderr = (cell.output, "") if cell.status == "ok" else ("", cell.output)
        if cell.status == "error":
            stdout, error = parted(cell.output)
            stderr = unstyled("\n".join(cell.traceback)) or ": ".join(error)
        seconds = round(cell.ended_at - cell.started_at, 3)
        return BlockLine(cell.code, ResultLine(stdout, stderr, seconds, [self._call(query) for query in cell.queries]))

    def _call(self, query: RecordedQuery) -> CallLine:
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
            child=self._child(query, None if query.answer is not None else reason),
        )

    def _child(self, query: RecordedQuery, stopped: str | None) -> ChildLine | None:
        """Return the run that answered a query: the first of those left whose question it is."""
        task = task_of_child(query.prompt)
        child = next((one for one in self._left if query.recursive and question_of(one.turns) == task), None)
        if child is None:
            return None
        self._left.remove(child)
        written = _Written(child, self._below, stopped)
        return ChildLine(written.first(), written.turns())


def _role(role: str) -> Any:
    return role if role in {"system", "user", "assistant"} else "user"
