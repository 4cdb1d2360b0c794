"""The results of the methods of `rlm_client.client.Client`: the tools' answers, with the same field names.

``raw`` is the complete answer: fields that only some answers have are not all declared.
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
        """Create it from a tool's answer, with lists as tuples; unknown fields are only in ``raw``."""
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

    ``cut``: the ``prompt`` did not fit into the answer, and is empty; `Client.pending_queries` has it.
    """

    id: str
    prompt: str = ""
    model: str | None = None
    schema: Mapping[str, Any] | None = None
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Cell(Result):
    """The result of a cell.

    ``status`` is ``finished``, ``waiting`` if it waits for answers to ``pending_llm_queries``, or ``queued`` if it is
    behind a cell that waits for them; ``success`` is then None. ``displayed`` has the texts that it passed to
    ``display``. ``error`` is the traceback if it raised. ``full_output`` names the context with the whole output, if
    that was too long. ``new_files`` are the paths of what is new in the session's scratch folder. A batch has
    ``cells``, and ``skipped`` is the number of cells that did not run.
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
    new_files: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    skipped: int = 0


@dataclass(frozen=True, kw_only=True)
class Answered(Result):
    """The accepted answers. ``cell`` is the result of the cell that waited for one of them."""

    answered: tuple[str, ...] = ()
    failed: tuple[Mapping[str, Any], ...] = ()
    still_pending: tuple[str, ...] = ()
    cell: Cell | None = None

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> Self:
        """Create it from an answer of answer_queries."""
        cell = Cell.read(answer) if "success" in answer or "status" in answer else None
        return replace(super().read(answer), cell=cell)


@dataclass(frozen=True, kw_only=True)
class Files(Result):
    """The files of a directory or an archive: how many were loaded, why not all, and the context that lists them."""

    count: int
    skipped: Mapping[str, int]
    table: str


@dataclass(frozen=True, kw_only=True)
class Context(Result):
    """A loaded text; ``size`` in bytes. ``files`` describes its files, if there were several.

    ``notice`` says that a variable of code lost its name to it.
    """

    name: str
    line_count: int
    size: int
    type: str
    files: Files | None = None
    notice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Page(Result):
    """Lines of a text; ``cut``: lines in ``content`` are shortened, each with a mark that gives its length."""

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
    """A loaded text, or a variable of code.

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
    """A handle of a text that other sessions can use."""

    handle: str
    var_name: str
    type: str


@dataclass(frozen=True, kw_only=True)
class Citation(Result):
    """Lines of a text, with a hash of the whole text."""

    name: str
    lines: str
    hash: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Rows(Result):
    """The rows of a query, or the first ones; ``full_output`` then names the context with all of them as JSON lines."""

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
    """The result of a rollback: the code of the undone cells, and the restored and deleted variables."""

    session: str
    undone: tuple[str, ...] = ()
    variables_restored: tuple[str, ...] = ()
    variables_gone: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pictures(Result):
    """Pictures that code displayed: a description of each, and its PNG in ``data``."""

    images: tuple[Mapping[str, Any], ...] = ()
    data: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ended(Result):
    """A session that has ended."""

    ended: str


@dataclass(frozen=True, kw_only=True)
class FrameAnswer(Result):
    """The common fields of answers about a frame: its id, and the ``current`` frame with the path to it."""

    frame: str = ""
    goal: str = ""
    status: str = ""
    parent: str | None = None
    current: str = ""
    breadcrumb: str = ""
    notice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Planned(FrameAnswer):
    """Planned goals: a line for each, with its id, indented below its parent."""

    planned: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Pushed(FrameAnswer):
    """A started frame in ``session``. ``context`` is the text for a model.

    ``source`` is ``checkpoint`` if a cell was running in the session ``forked_from``. ``current_unchanged`` says what
    to pass as session if another frame stays current, and ``planned_too`` which frame plans the same goal.
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
    """The result of a frame; ``source`` is the origin of the summary: ``caller`` or ``extract``. ``log`` is a file.

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
    """A frame with its ``context`` and its ``tree``, a line for each frame; or the ids of changed frames.

    ``turns`` are messages, and ``stats`` counts of the whole conversation, if requested.
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
"""Fields that contain answers, and the functions that read them."""


def _made(part: Field[Any], value: Any) -> Any:
    """Convert a value of an answer to the type of its field."""
    read = _HELD.get(part.name)
    if str(part.type).startswith("tuple"):
        return tuple(value or () if read is None else map(read, value or ()))
    return value if read is None or value is None else read(value)
