"""Translate a Python regular expression for RE2, over a buffer of many lines.

RE2 is linear in time and releases the interpreter lock, but speaks another dialect.  So the pattern is parsed by
Python's parser, and emitted again from the tree:

- every atom that matches one character becomes the explicit set of characters that Python's `re` says it
  matches (see charsets), never the newline: a match cannot leave its line;
- `^` and `$` become those of multi-line mode;
- what RE2 cannot express (look-around, back-references, Unicode word boundaries ...) is left out or widened,
  so that the emitted pattern matches at least every line the original does.  `exact` is then false, and each
  line found must be confirmed by `re`.

Leftmost, longest or lazy makes no difference here: the only question is whether a line matches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from rlm_contexts.search.charsets import Ranges, equal_ignoring_case, matched_by
from rlm_ipc.late_dataclasses import dataclass

_MOST_REPEATS = 1000  # RE2 refuses more
_NEWLINE = 0x0A
_SURROGATES = (0xD800, 0xDFFF)
_TOP = 0x10FFFF
_NOTHING = r"[^\x00-\x{10ffff}]"
_ANYTHING = r"[^\n]*"
_TYPES = re.ASCII | re.UNICODE | re.LOCALE
_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_SPACE: r"\s",
    op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)
_SINGLE = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY, op.CATEGORY)

Node = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the emitted pattern may rely on.

    Attributes:
        ascii_text: the text holds no other characters.
        crlf: lines may end in a carriage return that is not part of them.
        coarse: sets of non-ASCII characters are widened to all of them: a much smaller program.
    """

    ascii_text: bool
    crlf: bool = False
    coarse: bool = False


@dataclass(frozen=True, slots=True)
class Translation:
    """An RE2 pattern, in multi-line mode; `exact` when it matches no other lines than the original."""

    source: str
    exact: bool


def translate(pattern: str, flags: int, dialect: Dialect) -> Translation:
    """Emit a pattern that `re.compile(pattern, flags)` accepts, and whose final flags are `flags`."""
    emitter = _Emitter(dialect)
    source = emitter.sequence(list(parser.parse(pattern, flags)), flags, last=True)
    return Translation(f"(?m:{source})", emitter.exact)


class _Emitter:
    def __init__(self, dialect: Dialect) -> None:
        self.exact = not dialect.crlf
        self._dialect = dialect

    def sequence(self, nodes: Sequence[Node], flags: int, *, last: bool = False) -> str:
        """Args: last, nothing follows in the whole pattern."""
        final = len(nodes) - 1
        return "".join(self._node(kind, value, flags, last and at == final) for at, (kind, value) in enumerate(nodes))

    def _node(self, kind: Any, value: Any, flags: int, last: bool) -> str:
        if kind in _SINGLE:
            return self._single(kind, value, flags)
        if kind is op.SUBPATTERN:
            _, added, removed, body = value
            return f"(?:{self.sequence(list(body), scoped(flags, added, removed), last=last)})"
        if kind is op.BRANCH:
            return "(?:" + "|".join(self.sequence(list(branch), flags, last=last) for branch in value[1]) + ")"
        if kind in _REPEATS:
            return self._repeat(kind, value, flags)
        if kind is op.AT:
            return self._position(value, flags, last)
        return self._widened(kind, value, flags)

    def _widened(self, kind: Any, value: Any, flags: int) -> str:
        """Return, for constructs that RE2 lacks, something that matches wherever they do."""
        self.exact = False
        if kind is op.ATOMIC_GROUP:
            return f"(?:{self.sequence(list(value), flags)})"
        if kind is op.GROUPREF_EXISTS:
            _, yes, no = value
            return f"(?:{self.sequence(list(yes), flags)}|{self.sequence(list(no or []), flags)})"
        if kind in {op.ASSERT, op.ASSERT_NOT}:
            return ""
        return _NOTHING if kind is op.FAILURE else _ANYTHING  # a back-reference

    def _single(self, kind: Any, value: Any, flags: int) -> str:
        case = flags & re.IGNORECASE
        if kind is op.LITERAL and not case:
            return self._set(((value, value),))
        kept = flags & (re.IGNORECASE | re.ASCII)
        if kind is op.LITERAL:
            return self._set(equal_ignoring_case(value, kept, self._dialect.ascii_text))
        return self._set(matched_by(_atom(kind, value), kept, self._dialect.ascii_text))

    def _set(self, ranges: Ranges) -> str:
        narrow = [(first, min(last, 127)) for first, last in ranges if first < 128]
        pieces = [piece for first, last in narrow for piece in _without(first, last, _NEWLINE, _NEWLINE)]
        if not self._dialect.ascii_text:
            pieces += self._wide([(max(first, 128), last) for first, last in ranges if last > 127])
        if not pieces:
            return _NOTHING
        if pieces[0][0] == pieces[-1][1]:
            return _escaped(pieces[0][0])
        return "[" + "".join(f"{_escaped(first)}-{_escaped(last)}" for first, last in pieces) + "]"

    def _wide(self, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the non-ASCII part of a set.  Surrogates do not occur in UTF-8, so "all" is one cheap range."""
        pieces = [piece for first, last in ranges for piece in _without(first, last, *_SURROGATES)]
        everything = [(128, _TOP)]
        if pieces == _without(128, _TOP, *_SURROGATES):
            return everything
        if self._dialect.coarse and pieces:
            self.exact = False
            return everything
        return pieces

    def _repeat(self, kind: Any, value: Any, flags: int) -> str:
        low, high, body = value
        # Possessive repeats match less than greedy ones.
        self.exact = self.exact and kind is not op.POSSESSIVE_REPEAT
        if low > _MOST_REPEATS or (high > _MOST_REPEATS and high is not op.MAXREPEAT):
            self.exact = False
            low, high = min(low, _MOST_REPEATS), op.MAXREPEAT
        inner = self.sequence(list(body), flags)
        return f"(?:{inner}){_quantifier(low, high)}" if inner else ""

    def _position(self, where: Any, flags: int, last: bool) -> str:
        if where in {op.AT_BEGINNING, op.AT_BEGINNING_STRING}:
            return "^"
        if where in {op.AT_END, op.AT_END_STRING}:
            if not self._dialect.crlf:
                return "$"
            return r"\r?$" if last else ""
        if where is op.AT_BOUNDARY and self._dialect.ascii_text:
            return r"\b"
        # Word boundaries next to other alphabets; and in an empty line Python finds no \B, RE2 does.
        self.exact = False
        return ""


def scoped(flags: int, added: int, removed: int) -> int:
    """Return flags within (?aiu-i:...), as the re module combines them."""
    if added & _TYPES:
        flags &= ~_TYPES
    return (flags | added) & ~removed


def _atom(kind: Any, value: Any) -> str:
    """Return the Python source of a node that matches one character."""
    if kind is op.ANY:
        return r"[^\n]"
    if kind is op.NOT_LITERAL:
        return f"[^{_python(value)}]"
    if kind is op.CATEGORY:
        return _CATEGORIES[value]
    return "[" + "".join(_member(*item) for item in value) + "]"


def _member(kind: Any, value: Any) -> str:
    if kind is op.NEGATE:
        return "^"
    if kind is op.RANGE:
        return f"{_python(value[0])}-{_python(value[1])}"
    return _CATEGORIES[value] if kind is op.CATEGORY else _python(value)


def _python(code: int) -> str:
    return f"\\U{code:08x}"


def _escaped(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\x{{{code:x}}}"


def _without(first: int, last: int, gap_first: int, gap_last: int) -> list[tuple[int, int]]:
    """Return the range first..last with a gap cut out of it."""
    pieces = ((first, min(last, gap_first - 1)), (max(first, gap_last + 1), last))
    return [piece for piece in pieces if piece[0] <= piece[1]]


def _quantifier(low: int, high: Any) -> str:
    if high is op.MAXREPEAT or high == op.MAXREPEAT:
        return "*" if not low else "+" if low == 1 else f"{{{low},}}"
    return "?" if (low, high) == (0, 1) else f"{{{low}}}" if low == high else f"{{{low},{high}}}"
