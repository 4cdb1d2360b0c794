"""Tracebacks for users and agents: the frames of their own code, without the machinery around it."""

from __future__ import annotations

import itertools
import linecache
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from rlm_ipc.late_dataclasses import dataclass

CELL_PREFIX = "<cell "


def _machinery() -> tuple[str, ...]:
    """Folders whose frames are ours or Jupyter's, never the user's."""
    import ipykernel
    import IPython

    import rlm_contexts
    import rlm_ipc
    import rlm_sandbox

    ours = Path(__file__).resolve().parents[1]
    packages = (
        Path(str(module.__file__)).resolve().parent
        for module in (IPython, ipykernel, rlm_sandbox, rlm_ipc, rlm_contexts)
    )
    return tuple(f"{folder}/" for folder in (*packages, ours))


_HIDDEN = _machinery()
# The descriptor of `type` itself: ``cls.__name__`` would ask the metaclass, which may be the user's.
_name: Callable[[type], str] = type.__dict__["__name__"].__get__
# Of a group's own class, too, a property of the user's could answer.
_errors: Callable[[BaseException], tuple[BaseException, ...]] = BaseExceptionGroup.__dict__["exceptions"].__get__
UNSAID = "(its message cannot be shown)"
MOST_LINKS = 100
"""How far back a chain of errors is shown."""
MOST_IN_GROUP, MOST_GROUPS = 15, 4
"""How many errors of a group are shown, and how many groups within one another."""


def name_of(cls: type) -> str:
    """The name of a class, whatever its metaclass says."""
    return str.__str__(_name(cls))  # the name may be an instance of a `str` subclass with methods of its own


def text_of(error: BaseException) -> str:
    """The message of an error, or `UNSAID` if its ``__str__`` fails."""
    try:
        return str.__str__(str(error))
    except BaseException:
        return UNSAID


def is_of_library(file: str) -> bool:
    """Whether a frame of this file is a library's: no cell's, and not the machinery's."""
    return not file.startswith((CELL_PREFIX, *_HIDDEN))


@dataclass(frozen=True, slots=True)
class _Call:
    """A frame, and how many frames like it follow at once."""

    filename: str
    lineno: int | None
    function: str
    again: int = 0

    @property
    def own(self) -> bool:
        """Whether it is in a cell."""
        return self.filename.startswith(CELL_PREFIX)

    @property
    def library(self) -> str:
        """The file within the library that it is in; empty if it is in none."""
        if self.own:
            return ""
        # What is compiled from C or made by a library has a name that is no path.
        path = _LIBRARY.split(self.filename)
        return path[-1] if len(path) > 1 or not self.filename.startswith("/") else ""


_LIBRARY = re.compile(r"(?:/lib/python3\.\d+)?/(?:site|dist)-packages/|/lib/python3\.\d+/")


def _calls(tb: TracebackType | None) -> list[_Call]:
    """The frames of the user's code and of libraries. A call that repeats itself is there once."""
    found: list[_Call] = []
    while tb is not None:
        code = tb.tb_frame.f_code
        call = _Call(code.co_filename, tb.tb_lineno, code.co_name)
        tb = tb.tb_next
        if call.filename.startswith(_HIDDEN):
            continue
        last = found[-1] if found else None
        if last is not None and (last.filename, last.lineno, last.function) == (
            call.filename,
            call.lineno,
            call.function,
        ):
            found[-1] = replace(last, again=last.again + 1)
        else:
            found.append(call)
    return found


def _told(calls: list[_Call], look: _Look) -> Iterator[str]:
    """The lines of the frames: of libraries the last one in a row, of many the first and the last."""
    if len(calls) > MOST_CALLS:
        yield from _told(calls[:ENDS], look)
        yield f"  [{sum(1 + call.again for call in calls[ENDS:-ENDS])} more calls]"
        calls = calls[-ENDS:]
    for library, group in itertools.groupby(calls, lambda call: bool(call.library)):
        row = list(group)
        if library:
            before = sum(1 + call.again for call in row) - 1
            more = f" (after {before} more call{'' if before == 1 else 's'} in libraries)" if before else ""
            yield f"  {look.place(f'{row[-1].library}, line {row[-1].lineno}')}, in {row[-1].function}{more}"
            continue
        for call in row:
            yield from _lines(call, look)


def _lines(call: _Call, look: _Look) -> Iterator[str]:
    where = f"Cell {call.filename[len(CELL_PREFIX) : -1]}" if call.own else f'File "{call.filename}"'
    within = "" if call.function == "<module>" else f", in {call.function}"
    yield f"  {look.place(f'{where}, line {call.lineno}')}{within}"
    yield from look.source(call)
    if call.again:
        yield f"  [the same call {call.again} more time{'' if call.again == 1 else 's'}]"


class _Look:
    """How a traceback looks for an agent: short, and without colour."""

    def place(self, text: str) -> str:
        """Say where a frame is."""
        return text

    def source(self, call: _Call) -> Iterator[str]:
        """Show the line of a frame."""
        if call.lineno and (line := linecache.getline(call.filename, call.lineno).strip()):
            yield f"    {line}"

    def column(self, error: SyntaxError, text: str) -> Iterator[str]:
        """Show where in its line a text is not Python."""
        yield from ()

    def error(self, text: str) -> str:
        """Show the name of an error and its message."""
        return text


class _ForPeople(_Look):
    """How it looks in a front end: the line in its surroundings, marked and in colour."""

    def place(self, text: str) -> str:
        """Say where a frame is."""
        return f"{_GREEN}{text}{_PLAIN}"

    def source(self, call: _Call) -> Iterator[str]:
        """Show the lines around a frame's line, with an arrow at that one."""
        lines, at = linecache.getlines(call.filename), call.lineno or 0
        for number in range(max(1, at - AROUND), min(len(lines), at + AROUND) + 1):
            text = lines[number - 1].rstrip()
            if number == at:
                yield f"{_BOLD}----> {number:>3} {text}{_PLAIN}"
            else:
                yield f"      {_DIM}{number:>3}{_PLAIN} {text}".rstrip()

    def column(self, error: SyntaxError, text: str) -> Iterator[str]:
        """Show an arrow below the place."""
        at = (error.offset or 0) - 1 - (len(text) - len(text.lstrip()))
        if 0 <= at <= len(text.strip()):
            yield f"    {' ' * at}^"

    def error(self, text: str) -> str:
        """Show the name of an error in colour, and its message."""
        name, colon, message = text.partition(":")
        return f"{_RED}{name}{_PLAIN}{colon}{message}"


_GREEN, _RED, _BOLD, _DIM, _PLAIN = "\x1b[32m", "\x1b[1;31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_OUR_MODULE = re.compile(r"^rlm_\w+(?:\.\w+)*\.")
"""What stands before the name of an error of ours: where it is defined helps nobody."""
AROUND = 2
"""How many lines before and after its own a frame shows to people."""
MOST_CALLS, ENDS = 24, 4
"""How many frames a traceback shows; of more than that it shows so many of the first and of the last."""


def _chain(error: BaseException) -> Iterator[tuple[str, BaseException]]:
    """The error and its causes, oldest first, each with the sentence that Python prints between it and the next."""
    found: list[tuple[str, BaseException]] = []
    known: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in known and len(found) < MOST_LINKS:
        known.add(id(link))
        sentence, before = "", None
        if link.__cause__ is not None:
            sentence, before = "The above exception was the direct cause of the following exception:", link.__cause__
        elif link.__context__ is not None and not link.__suppress_context__:
            sentence = "During handling of the above exception, another exception occurred:"
            before = link.__context__
        found.append((sentence, link))
        link = before
    return reversed(found)


def _message(error: BaseException, look: _Look) -> list[str]:
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(CELL_PREFIX):
        where = f"Cell {error.filename[len(CELL_PREFIX) : -1]}"
        head = f"  {where}, line {error.lineno}" if error.lineno else f"  {where}"
        text = (error.text or linecache.getline(error.filename, error.lineno or 0)).rstrip()
        return [
            head,
            *([f"    {text.strip()}"] if text.strip() else []),
            *look.column(error, text),
            f"{type(error).__name__}: {error.msg}",
        ]
    lines = [line.rstrip("\n") for line in traceback.format_exception_only(error)]
    lines[0] = _OUR_MODULE.sub("", lines[0])
    return lines


def render(error: BaseException, *, for_people: bool = False, advice: str = "") -> list[str]:
    """The traceback of ``error`` as lines, in the shape of Jupyter's ``traceback`` field.

    It is short and has no colour, unless it is ``for_people``. ``advice`` follows the message. An error that cannot
    even be rendered (a hostile ``__str__``) is named by its type.
    """
    try:
        lines = _rendered(error, _ForPeople() if for_people else _Look())
        return [*lines[:-1], f"{lines[-1]}{'. ' if text_of(error) else ': '}{advice}"] if advice else lines
    except BaseException:
        return [f"{name_of(type(error))}: {UNSAID}"]


def _grouped(error: BaseException, look: _Look, depth: int) -> Iterator[str]:
    """The lines of the errors in a group, which alone say what has happened."""
    if not isinstance(error, BaseExceptionGroup) or depth == MOST_GROUPS:
        return
    errors: tuple[BaseException, ...] = _errors(error)
    for number, part in enumerate(errors[:MOST_IN_GROUP], 1):
        yield f"  [{number} of {len(errors)}]"
        yield from (f"    {line}" for line in _rendered(part, look, depth + 1))
    if len(errors) > MOST_IN_GROUP:
        yield f"  [{len(errors) - MOST_IN_GROUP} more errors]"


def _rendered(error: BaseException, look: _Look, depth: int = 0) -> list[str]:
    lines: list[str] = []
    for sentence, part in _chain(error):
        if sentence and lines:
            lines += ["", sentence, ""]
        if calls := _calls(part.__traceback__):
            lines += ["Traceback (most recent call last):", *_told(calls, look)]
        try:
            message = _message(part, look)
        except BaseException:
            message = [f"{name_of(type(part))}: {UNSAID}"]
        at = next((at for at, line in enumerate(message) if not line.startswith(" ")), 0)
        message[at] = look.error(message[at])
        lines += [*message, *_grouped(part, look, depth)]
    return lines
