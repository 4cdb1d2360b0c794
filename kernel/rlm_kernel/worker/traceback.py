"""Tracebacks for users and agents: the frames of their own code, without the machinery around it."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

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
UNSAID = "(its message cannot be shown)"
MOST_LINKS = 100
"""How far back a chain of errors is shown."""


def name_of(cls: type) -> str:
    """The name of a class, whatever its metaclass says."""
    return str.__str__(_name(cls))  # the name may be an instance of a `str` subclass with methods of its own


def text_of(error: BaseException) -> str:
    """The message of an error, or `UNSAID` if its ``__str__`` fails."""
    try:
        return str.__str__(str(error))
    except BaseException:
        return UNSAID


def _frames(tb: TracebackType | None) -> Iterator[tuple[str, int | None, str]]:
    while tb is not None:
        code = tb.tb_frame.f_code
        if not code.co_filename.startswith(_HIDDEN):
            yield code.co_filename, tb.tb_lineno, code.co_name
        tb = tb.tb_next


def _line(filename: str, lineno: int | None, function: str) -> str:
    where = f"Cell {filename[len(CELL_PREFIX) : -1]}" if filename.startswith(CELL_PREFIX) else f'File "{filename}"'
    place = f"  {where}, line {lineno}" + ("" if function == "<module>" else f", in {function}")
    source = linecache.getline(filename, lineno).strip() if lineno else ""
    return f"{place}\n    {source}" if source else place


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


def _message(error: BaseException) -> list[str]:
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(CELL_PREFIX):
        where = f"Cell {error.filename[len(CELL_PREFIX) : -1]}"
        head = f"  {where}, line {error.lineno}" if error.lineno else f"  {where}"
        text = (error.text or linecache.getline(error.filename, error.lineno or 0)).rstrip()
        return [
            head,
            *([f"    {text.strip()}"] if text.strip() else []),
            f"{type(error).__name__}: {error.msg}",
        ]
    return [line.rstrip("\n") for line in traceback.format_exception_only(error)]


def render(error: BaseException) -> list[str]:
    """The traceback of ``error`` as lines without colour, in the shape of Jupyter's ``traceback`` field.

    An error that cannot even be rendered (a hostile ``__str__``) is named by its type.
    """
    try:
        return _rendered(error)
    except BaseException:
        return [f"{name_of(type(error))}: {UNSAID}"]


def _rendered(error: BaseException) -> list[str]:
    lines: list[str] = []
    for sentence, part in _chain(error):
        if sentence and lines:
            lines += ["", sentence, ""]
        frames = [_line(*frame) for frame in _frames(part.__traceback__)]
        if frames:
            lines += ["Traceback (most recent call last):", *frames]
        try:
            lines += _message(part)
        except BaseException:
            lines.append(f"{name_of(type(part))}: {UNSAID}")
    return lines
