"""How to search for a pattern: what RE2 does over the whole buffer, and how a line it finds is confirmed."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import re2

from rlm_contexts.errors import InvalidRegex
from rlm_contexts.search.literals import Needles, needles_for
from rlm_contexts.search.translate import Dialect, Translation, translate
from rlm_contexts.searches import Syntax
from rlm_ipc.late_dataclasses import dataclass

MAX_PATTERN = 10_000
"""Characters; longer patterns take `re` seconds to compile."""
_PROGRAM_MEMORY = 16 << 20  # bytes RE2 may use for a program and its automata
_GLOBAL_FLAGS = re.compile(r"\A\(\?[aiLmsux]+\)")
_CHEAP = 100  # ways to match at one position, up to which backtracking is as good as linear
_RE2 = re2._re2.RE2  # the module's own classes copy every text they search
UNANCHORED = _RE2.Anchor.UNANCHORED
"""The anchor argument of Program.Match."""

Program = Any
"""A compiled RE2; Match(anchor, buffer, start, stop) gives [(start, stop)], (-1, -1) for no match."""


USUAL = Syntax()
"""A regular expression, ignoring case."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A pattern, ready to search texts of one kind.  Can be shared between threads.

    Attributes:
        regex: the pattern as Python compiled it: the reference.
        program: over the buffer, finds at least the lines that match; None when every line is a candidate.
        exact: it finds no others.
        line_program: exact over one line, or None.
        ascii_lines: line_program is exact only for lines that are pure ASCII.
        backtracks: confirming a line may take `re` more than linear time.
        weight: instructions of the largest program, a measure of the worst case per byte.
        needles: literals of which every matching line holds one, or None.
    """

    regex: re.Pattern[str]
    program: Program | None
    exact: bool
    line_program: Program | None
    ascii_lines: bool
    backtracks: bool
    weight: int
    needles: Needles | None

    def confirms(self, line: memoryview) -> bool:
        """Whether a line, without its line end, really matches."""
        program = self.program if self.exact else self.line_program
        if program is not None and (not self.ascii_lines or bytes(line).isascii()):
            found: bool = program.Match(UNANCHORED, line, 0, len(line))[0][0] >= 0
            return found
        return searches(self.regex, str(line, "utf-8"))


def searches(regex: re.Pattern[str], line: str) -> bool:
    """Return whether `re` finds the pattern in a line.  Raises: InvalidRegex when `re` itself fails on it."""
    try:
        return regex.search(line) is not None
    except (
        SystemError,
        RecursionError,
        MemoryError,
    ) as problem:  # there are such patterns: bugs and limits of re
        raise InvalidRegex(regex.pattern, f"Python's re module fails on it ({problem})") from problem


def compile_pattern(pattern: str, syntax: Syntax = USUAL) -> re.Pattern[str]:
    """Return the pattern as Python's `re`.  Raises: InvalidRegex."""
    if not isinstance(pattern, str):
        raise InvalidRegex(repr(pattern)[:80], "a pattern must be a string")
    if len(pattern) > MAX_PATTERN:
        raise InvalidRegex(pattern[:80], f"a pattern may have at most {MAX_PATTERN:,} characters")
    flags = re.NOFLAG if syntax.case_sensitive else re.IGNORECASE
    try:
        regex = re.compile(re.escape(pattern) if syntax.fixed else pattern, flags)
        return re.compile(_as_word(pattern, regex, syntax), regex.flags) if syntax.word else regex
    except re.error as problem:
        raise InvalidRegex(pattern, problem.msg, problem.pos) from None
    except (OverflowError, RecursionError, ValueError) as problem:
        raise InvalidRegex(pattern, str(problem)) from None


def _as_word(pattern: str, regex: re.Pattern[str], syntax: Syntax) -> str:
    """Return the pattern between word boundaries; next to a fixed string's own punctuation none are needed."""
    if syntax.fixed:
        before, after = (r"\b" if char.isalnum() or char == "_" else "" for char in (pattern[:1], pattern[-1:]))
        return f"{before}{regex.pattern}{after}"
    body = _GLOBAL_FLAGS.sub("", regex.pattern)  # regex.flags has them; they are allowed only at the very start
    return f"\\b(?:{body}\n)\\b" if regex.flags & re.VERBOSE else f"\\b(?:{body})\\b"


@lru_cache(maxsize=8)
def plan_for(pattern: str, ascii_text: bool, crlf: bool, syntax: Syntax = USUAL) -> Plan:
    """Return the plan for texts that are ASCII or not, with carriage returns at line ends or not.

    Raises: InvalidRegex.
    """
    regex = compile_pattern(pattern, syntax)
    program, translation = _over_buffer(regex, Dialect(ascii_text, crlf))
    needles = needles_for(regex, ascii_text)
    if translation is not None and translation.exact:
        return Plan(regex, program, True, None, False, False, _weight(program), needles)
    line_program, ascii_lines = _over_line(regex, ascii_text)
    by_python = line_program is None or ascii_lines
    backtracks = by_python and may_backtrack(regex)
    weight = max(_weight(program), _weight(line_program))
    return Plan(regex, program, False, line_program, ascii_lines, backtracks, weight, needles)


def may_backtrack(regex: re.Pattern[str]) -> bool:
    """Return whether `re` may need more than linear time, times a small factor, to search a line."""
    return _ways(parser.parse(regex.pattern, regex.flags)) > _CHEAP


def _over_buffer(regex: re.Pattern[str], dialect: Dialect) -> tuple[Program | None, Translation | None]:
    coarse = Dialect(dialect.ascii_text, dialect.crlf, coarse=True)
    for attempt in (dialect, coarse):
        program, translation = _compiled(regex, attempt)
        if program is not None:
            return program, translation
    return None, None


def _over_line(regex: re.Pattern[str], ascii_text: bool) -> tuple[Program | None, bool]:
    for only_ascii in (False, True):
        program, translation = _compiled(regex, Dialect(ascii_text or only_ascii))
        if program is not None and translation is not None and translation.exact:
            return program, only_ascii and not ascii_text
    return None, False


def _compiled(regex: re.Pattern[str], dialect: Dialect) -> tuple[Program | None, Translation | None]:
    try:
        translation = translate(regex.pattern, regex.flags, dialect)
    except RecursionError:
        return None, None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PROGRAM_MEMORY
    program = _RE2(translation.source.encode(), options)
    return (program, translation) if program.ok() else (None, None)


def _weight(program: Program | None) -> int:
    return 0 if program is None else int(program.ProgramSize())


def _ways(nodes: Any) -> float:
    """Return an upper bound of the ways to try a pattern at one position; infinite for open repeats."""
    return math.prod(_ways_of(kind, value) for kind, value in nodes)


def _ways_of(kind: Any, value: Any) -> float:
    if kind is op.BRANCH:
        return float(sum(_ways(branch) for branch in value[1]))
    if kind is op.SUBPATTERN:
        return _ways(value[3])
    if kind is op.ATOMIC_GROUP:
        return _ways(value)
    if kind in {op.ASSERT, op.ASSERT_NOT}:
        return _ways(value[1])
    if kind in {op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT}:
        low, high, body = value
        return math.inf if high > _CHEAP else (high - low + 1) * _ways(body) ** high
    return math.inf if kind is op.GROUPREF_EXISTS else 1.0
