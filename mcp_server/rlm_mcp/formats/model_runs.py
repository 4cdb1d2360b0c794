"""The runs of a session, read from its record: a question, the turns of the model that worked on it, and its answer.

A run begins with the turn in which a model is told how to work. A cell belongs to the turn during which it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rlm_client.rlm.prompts import LAST_TURN, question_in, task_of_child
from rlm_ipc.daemon_rows import SaidMessage
from rlm_ipc.displays import MOST_KEPT_CHARS, unstyled, with_traceback
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.session_record import RecordedCell, RecordedContext, RecordedQuery, RecordedTurn, SessionRecord
from rlm_mcp.formats.markdown_tree import Tree, apart
from rlm_mcp.formats.pictures import pictures_in

_LONGEST_LINE = 400
"""How many characters of a question and of an answer a line shows."""
_LONGEST_TEXT = 16_000
"""How many characters are shown of each message, reply, code, output, prompt and answer."""
_MOST_TURNS = 200
"""How many turns of a run are shown, the latest ones."""


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in one line. ``number`` is that of its first turn, ``key`` and ``parent`` are keys of sessions.

    ``status`` is ``answered``, ``out_of_turns`` (the answer is the model's last text), ``open`` or ``unanswered``.
    Tokens, ``cost`` and ``queries`` include those of its code. Times are epoch seconds. ``stopped`` says why there is
    no answer, if that is known.
    """

    key: int
    number: int
    parent: int | None
    session: str
    question: str
    answer: str | None
    model: str
    status: str
    turns: int
    cells: int
    failed: int
    queries: int
    input_tokens: int
    output_tokens: int
    cost: float
    started: float
    ended: float
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A query of the code. ``child`` is the index in `RunShown.children` of the run that answered it."""

    query: RecordedQuery
    child: int | None


@dataclass(frozen=True, slots=True)
class RunCell:
    """A cell with its queries. ``pictures`` is how many it showed, ``count`` its number in the kernel.

    ``markdown`` is the Markdown that it showed.
    """

    number: int
    author: str
    code: str
    output: str
    status: str
    started: float
    seconds: float
    pictures: int
    queries: tuple[RunQuery, ...]
    count: int | None
    markdown: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class RunTurn:
    """A turn, and separately the cells that its code ran."""

    turn: RecordedTurn
    cells: tuple[RunCell, ...]


@dataclass(frozen=True, slots=True)
class RunShown:
    """A run, with long texts cut. ``above`` is the run that asked for it, ``children`` the runs that it asked for."""

    line: RunLine
    question: str
    answer: str | None
    policy: str
    texts: tuple[RecordedContext, ...]
    turns: tuple[RunTurn, ...]
    left_out: int
    above: RunLine | None
    children: tuple[RunLine, ...]


def lines_of(
    record: SessionRecord, key: int, parent: int | None, *, lives: bool, stopped: str | None = None
) -> list[RunLine]:
    """Return the runs of a session, the oldest first; ``stopped`` is why the last one has no answer."""
    lines = [_line(record, turns, key, parent, lives=lives) for turns in _runs(record)]
    if lines and stopped is not None and lines[-1].answer is None:
        lines[-1] = replace(lines[-1], stopped=_cut(stopped, _LONGEST_LINE))
    return lines


def shown(record: SessionRecord, line: RunLine, known: Sequence[RunLine]) -> RunShown | None:
    """Return the run of a line, with those ``known`` that are above and below it. None: its turns are deleted."""
    turns = next((found for found in _runs(record) if found[0].number == line.number), None)
    if turns is None:
        return None
    below = sorted(
        (one for one in known if one.parent == line.key and line.started <= one.started <= line.ended),
        key=lambda one: one.started,
    )
    left = list(range(len(below)))
    parts = tuple(
        RunTurn(_cut_turn(turn), tuple(_cell(cell, below, left) for cell in _cells(record, [turn]))) for turn in turns
    )
    above = [one for one in known if one.key == line.parent and one.started <= line.started]
    return RunShown(
        line,
        _cut(question_of(turns)),
        None if turns[-1].final is None else _cut(turns[-1].final),
        record.policy,
        record.contexts,
        parts[-_MOST_TURNS:],
        max(0, len(parts) - _MOST_TURNS),
        max(above, key=lambda one: one.started, default=None),
        tuple(below),
    )


def _runs(record: SessionRecord) -> Iterator[list[RecordedTurn]]:
    """Divide the turns of a session into runs. A run whose first turns are deleted begins with the next one."""
    run: list[RecordedTurn] = []
    for turn in record.turns:
        if run and turn.said and turn.said[0].role == "system":
            yield run
            run = []
        run.append(turn)
    if run:
        yield run


def _line(
    record: SessionRecord, turns: Sequence[RecordedTurn], key: int, parent: int | None, *, lives: bool
) -> RunLine:
    cells = list(_cells(record, turns))
    asked = [query for cell in cells for query in cell.queries]
    used: list[RecordedTurn | RecordedQuery] = [*turns, *asked]
    final = turns[-1].final
    return RunLine(
        key=key,
        number=turns[0].number,
        parent=parent,
        session=record.session,
        question=_cut(question_of(turns), _LONGEST_LINE),
        answer=None if final is None else _cut(final, _LONGEST_LINE),
        model=turns[-1].model[:200],
        status=_status(turns, lives=lives),
        turns=len(turns),
        cells=len(cells),
        failed=sum(cell.status != "ok" for cell in cells),
        queries=len(asked),
        input_tokens=sum(one.input_tokens for one in used),
        output_tokens=sum(one.output_tokens for one in used),
        cost=sum(one.cost for one in used),
        started=turns[0].started_at,
        ended=turns[-1].ended_at,
    )


def _status(turns: Sequence[RecordedTurn], *, lives: bool) -> str:
    if turns[-1].final is None:
        return "open" if lives else "unanswered"
    return "out_of_turns" if any(LAST_TURN in message.content for message in turns[-1].said) else "answered"


def question_of(turns: Sequence[RecordedTurn]) -> str:
    """Return the question of a run, which its first turn has."""
    return next((question_in(message.content) for message in turns[0].said if message.role == "user"), "")


def _cells(record: SessionRecord, turns: Iterable[RecordedTurn]) -> Iterator[RecordedCell]:
    times = [(turn.started_at, turn.ended_at) for turn in turns]
    return (cell for cell in record.cells if any(began <= cell.started_at <= ended for began, ended in times))


def _cell(cell: RecordedCell, children: Sequence[RunLine], left: list[int]) -> RunCell:
    markdown, written = apart(cell.displays, cell.output)
    return RunCell(
        cell.number,
        cell.author,
        _cut(cell.code),
        _cut(with_traceback(written, cell.traceback)),
        cell.status[:20],
        cell.started_at,
        cell.ended_at - cell.started_at,
        len(pictures_in(cell.displays, MOST_KEPT_CHARS)),
        tuple(_query(query, children, left) for query in cell.queries),
        cell.count,
        markdown,
    )


def _query(query: RecordedQuery, children: Sequence[RunLine], left: list[int]) -> RunQuery:
    """Return a query and the run that answered it: the first of those ``left`` that has it as its task."""
    task = _cut(task_of_child(query.prompt), _LONGEST_LINE)
    child = next((at for at in left if query.recursive and children[at].question == task), None)
    if child is not None:
        left.remove(child)
    answer, error = (None if text is None else _cut(text) for text in (query.answer, query.error))
    return RunQuery(replace(query, prompt=_cut(query.prompt), answer=answer, error=error), child)


def _cut_turn(turn: RecordedTurn) -> RecordedTurn:
    said = tuple(SaidMessage(message.role[:20], _cut(message.content)) for message in turn.said)
    final = None if turn.final is None else _cut(turn.final)
    return replace(turn, said=said, reply=_cut(turn.reply), final=final)


def _cut(text: str, longest: int = _LONGEST_TEXT) -> str:
    whole = unstyled(text[: 2 * longest])
    return whole if len(whole) <= longest else f"{whole[:longest]}…"
