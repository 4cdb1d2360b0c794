"""What the methods of `rlm_client.client.Client` return: the answers of the tools, with the names of their fields.

``raw`` is the whole answer: the fields that only some answers have are not all spelled out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields, replace
from typing import Any, Self

from rlm_ipc.errors import ProtocolError
from rlm_ipc.late_dataclasses import dataclass

__all__ = [
    "Answered",
    "Cell",
    "Citation",
    "Context",
    "Ended",
    "Files",
    "Fork",
    "Found",
    "Frame",
    "FrameAnswer",
    "Handle",
    "Match",
    "Page",
    "Pictures",
    "Planned",
    "Popped",
    "Pushed",
    "Query",
    "Result",
    "Rows",
    "Undone",
    "Variable",
    "Variables",
]


@dataclass(frozen=True, kw_only=True)
class Result:
    """An answer of the daemon."""

    raw: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """Make it of a tool's answer, lists in it as tuples; fields that it does not know are in ``raw`` only."""
        known = {part.name: _made(part, answer[part.name]) for part in fields(cls) if part.name in answer}
        try:
            return cls(raw=answer, **known)
        except TypeError as error:
            raise ProtocolError(
                f"the daemon's answer is not a valid {cls.__name__}: {error}; use one version of rlm-kernel"
            ) from error


@dataclass(frozen=True, kw_only=True)
class Query(Result):
    """A query that waits for its answer; ``schema`` is the JSON schema that it must fit, if there is one.

    ``cut`` says that the answer had no room for the ``prompt``, which is then empty; `Client.pending_queries` has it.
    """

    id: str
    prompt: str = ""
    model: str | None = None
    schema: Mapping[str, Any] | None = None
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Cell(Result):
    """What came of a cell.

    ``status`` is ``finished``, ``waiting`` when it waits for the answers of ``pending_llm_queries``, or ``queued`` when
    it runs after another cell that waits for them: its ``success`` is then None. ``displayed`` are the texts of what it
    gave to ``display``. ``error`` is the traceback of one that raised. ``full_output`` names the context that holds the
    whole of what was too long. A batch has ``cells``, and ``skipped`` is how many of them did not run.
    """

    status: str = "finished"
    success: bool | None = None
    stdout: str = ""
    stderr: str = ""
    displayed: tuple[str, ...] = ()
    error: str | None = None
    result: str | None = None
    execution_time_seconds: float = 0.0
    pending_llm_queries: tuple[Query, ...] = ()
    defined_variables: tuple[str, ...] = ()
    run: str | None = None
    notice: str | None = None
    full_output: str | None = None
    cells: tuple[Cell, ...] = ()
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Answered(Result):
    """Which answers were taken. ``cell`` is what came of the cell that waited for one of them."""

    answered: tuple[str, ...] = ()
    failed: tuple[Mapping[str, Any], ...] = ()
    still_pending: tuple[str, ...] = ()
    cell: Cell | None = None

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """Make it of an answer of answer_queries."""
        cell = Cell.read(answer) if "success" in answer or "status" in answer else None
        return replace(super().read(answer), cell=cell)


@dataclass(frozen=True, kw_only=True)
class Files(Result):
    """The files of a directory or an archive: how many were taken, why others were not, the context that lists them."""

    count: int
    skipped: Mapping[str, int]
    table: str


@dataclass(frozen=True, kw_only=True)
class Context(Result):
    """A loaded text; ``size`` in bytes. ``files`` are those that it was made of, if there were several.

    ``notice`` says that a variable of code has lost its name to it.
    """

    name: str
    line_count: int
    size: int
    type: str
    files: Files | None = None
    notice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Page(Result):
    """Lines of a text; ``cut`` says that lines in ``content`` are cut, and where one is, how long it is."""

    name: str
    offset: int
    total_lines: int
    returned: int
    has_more: bool
    content: str
    next_offset: int | None = None
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Match(Result):
    """A line that matches; ``line`` counts from 0, ``context`` the lines around it. ``cut`` says that some are cut."""

    line: int
    text: str
    context: tuple[str, ...] = ()
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Found(Result):
    """The lines that match; ``truncated`` says that there are more."""

    name: str
    pattern: str
    matches: int
    truncated: bool
    results: tuple[Match, ...]


@dataclass(frozen=True, kw_only=True)
class Variable(Result):
    """A variable: a loaded text, or one that code made.

    A text is ``shadowed_in_code`` while a variable has its name there; that one ``shadows_text``.
    """

    name: str
    line_count: int | None = None
    size: int | None = None
    type: str | None = None
    shadowed_in_code: bool = False
    shadows_text: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Variables(Result):
    """The variables of a session; ``total_size`` counts each loaded text once."""

    session: str
    variables: tuple[Variable, ...]
    total_size: int


@dataclass(frozen=True, kw_only=True)
class Handle(Result):
    """A pointer to a text that other sessions can use."""

    handle: str
    var_name: str
    type: str


@dataclass(frozen=True, kw_only=True)
class Citation(Result):
    """Lines of a text, with the hash of all of it."""

    name: str
    lines: str
    hash: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Rows(Result):
    """The rows of a query, or its first ones; ``full_output`` then names the context that holds all as JSON lines."""

    columns: list[str]
    row_count: int
    rows: list[list[Any]]
    full_output: str | None = None


@dataclass(frozen=True, kw_only=True)
class Fork(Result):
    """A forked session; ``source`` is ``live``, or ``checkpoint`` when a cell was running. ``frame`` has its goal."""

    session: str
    forked_from: str
    policy: str
    source: str
    connection_file: str | None = None
    notice: str | None = None
    frame: str | None = None


@dataclass(frozen=True, kw_only=True)
class Undone(Result):
    """What a rollback undid: the code of the cells, and variables that have their old values or are gone."""

    session: str
    undone: tuple[str, ...] = ()
    variables_restored: tuple[str, ...] = ()
    variables_gone: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pictures(Result):
    """Pictures that code has shown: what each is, and in ``data`` its PNG."""

    images: tuple[Mapping[str, Any], ...] = ()
    data: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ended(Result):
    """A session that has ended."""

    ended: str


@dataclass(frozen=True, kw_only=True)
class FrameAnswer(Result):
    """What every answer about a frame says: the ``frame`` by its id, and the ``current`` one with the way to it."""

    frame: str = ""
    goal: str = ""
    status: str = ""
    parent: str | None = None
    current: str = ""
    breadcrumb: str = ""
    notice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Planned(FrameAnswer):
    """Goals that are written down: a line for each, with its id, indented below its parent."""

    planned: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pushed(FrameAnswer):
    """A frame that runs in ``session``. ``context`` is what a model is to be told.

    ``source`` is ``checkpoint`` when a cell was running in the session ``forked_from``. ``current_unchanged`` says what
    to pass as session, when another frame stays the current one, and ``planned_too`` which frame plans the same goal.
    """

    session: str
    context: str = ""
    forked_from: str | None = None
    policy: str | None = None
    source: str | None = None
    current_unchanged: str | None = None
    planned_too: str | None = None


@dataclass(frozen=True, kw_only=True)
class Popped(FrameAnswer):
    """What came of a frame; ``source`` says who said the summary: ``caller`` or ``extract``. ``log`` is a file.

    ``failed``, ``adopted`` and ``invalidated`` are the ids of frames below.
    """

    summary: str = ""
    source: str = ""
    log: str | None = None
    handed_over: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    invalidated: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Frame(FrameAnswer):
    """A frame with its ``context`` and its ``tree``, a line for each frame; or the ids that a change was of.

    ``turns`` are messages, and ``stats`` counts of the whole conversation, when they were asked for.
    """

    kind: str = ""
    session: str | None = None
    children: tuple[str, ...] = ()
    log: str | None = None
    summary: str | None = None
    summary_by: str | None = None
    artifacts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    handed_over: tuple[str, ...] = ()
    tree: tuple[str, ...] = ()
    context: str = ""
    invalidated: tuple[str, ...] = ()
    still_running: tuple[str, ...] = ()
    reopened: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    stats: Mapping[str, Any] | None = None
    turns: tuple[Mapping[str, Any], ...] = ()


_HELD: Mapping[str, Callable[[Mapping[str, Any]], Result]] = {
    "cells": Cell.read,
    "files": Files.read,
    "pending_llm_queries": Query.read,
    "results": Match.read,
    "variables": Variable.read,
}
"""Fields that hold answers, and how these are read."""


def _made(part: Field[Any], value: Any) -> Any:
    """Return a value of an answer as its field has it."""
    read = _HELD.get(part.name)
    if str(part.type).startswith("tuple"):
        return tuple(value or () if read is None else map(read, value or ()))
    return value if read is None or value is None else read(value)
