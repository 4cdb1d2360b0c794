"""What the text before a cursor is part of: an attribute, a key, an argument, a file, a module, or a name."""

from __future__ import annotations

import itertools
import keyword
import re
from typing import Final

from rlm_ipc.late_dataclasses import dataclass

_TOKEN: Final = re.compile(
    r"""(?P<comment>\#[^\n]*)
      | (?P<text>(?i:[rbfut]{0,2})(?:\"\"\"(?:\\.|(?!\"\"\").)*(?:\"\"\"|\Z)|'''(?:\\.|(?!''').)*(?:'''|\Z)
          |"(?:\\.|[^"\\\n])*(?:"|(?=\n)|\Z)|'(?:\\.|[^'\\\n])*(?:'|(?=\n)|\Z)))
      | (?P<number>\d[\w.]*)
      | (?P<name>[^\W\d]\w*)
      | (?P<join>\\\n)
      | (?P<line>\n)
      | (?P<space>[^\S\n]+)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_TEXT_PARTS: Final = re.compile(r"""([a-zA-Z]{0,2})(\"\"\"|'''|"|')""")
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_CLOSING: Final = frozenset(_OPENING.values())
_NO_VALUE: Final = frozenset(keyword.kwlist) - {"None", "True", "False"}


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text: its kind, and where it begins and ends."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Call:
    """A bracket that is open at the cursor.

    ``of`` is the expression before it (empty if there is none), ``bracket`` the character, ``start`` its position, and
    ``names`` the keyword arguments already given.
    """

    of: str
    bracket: str
    start: int
    names: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place of a cursor.

    ``word`` is the name or the string content that ends there, ``start`` where it begins. Within a string, ``quote`` is
    what opened it. After a dot ``owner`` is the expression before the dot. ``line`` is the statement up to the cursor,
    and ``calls`` are the open brackets, innermost last.
    """

    word: str
    start: int
    line: str
    quote: str = ""
    owner: str | None = None
    calls: tuple[Call, ...] = ()
    comment: bool = False
    argument: bool = False
    """Whether an argument of the innermost call begins with ``word``."""


def tokens(text: str) -> list[Token]:
    """Split a text, which may end within a token."""
    return [Token(str(m.lastgroup), m.group(), m.start(), m.end()) for m in _TOKEN.finditer(text)]


def locate(code: str, position: int) -> Cursor:
    """Return where a cursor is."""
    return _locate(code[:position], 0)


def _locate(text: str, shift: int) -> Cursor:
    parts = tokens(text)
    last = parts[-1] if parts else None
    if last is not None and last.kind == "comment":
        return Cursor("", shift + len(text), "", comment=True)
    open_at = _open_brackets(parts)
    calls = tuple(_call(text, parts, at, shift) for at in open_at)
    line = text[_statement_start(parts, open_at) :]
    if last is not None and last.kind == "text" and (quote := _unclosed(last.text)):
        body = last.start + len(quote)
        content = text[body:]
        if "f" in quote.lower() and (inner := _replacement(content)) is not None:
            return _locate(content[inner:], shift + body + inner)
        return Cursor(content, shift + body, line, quote, calls=calls, argument=_begins_argument(parts[:-1]))
    word = last.text if last is not None and last.kind in ("name", "number") else ""
    rest = [token for token in (parts[:-1] if word else parts) if token.kind not in ("space", "line", "join")]
    start = shift + len(text) - len(word)
    if rest and rest[-1].text == ".":
        begin = _primary_start(rest, len(rest) - 2)
        owner = None if begin is None else text[rest[begin].start : rest[-1].start]
        return Cursor(word, start, line, owner=owner or "", calls=calls)
    return Cursor(word, start, line, calls=calls, argument=_begins_argument(rest))


def _unclosed(text: str) -> str:
    """Return the prefix and the quote of an unterminated string; empty if it is terminated."""
    opened = _TEXT_PARTS.match(text)
    if opened is None:
        return ""
    quote, rest = opened[2], text[opened.end() :]
    closed = rest.endswith(quote) and not re.search(r"(?<!\\)(?:\\\\)*\\$", rest[: -len(quote)])
    return "" if closed else opened.group()


def _replacement(content: str) -> int | None:
    """Return where the f-string expression that holds the cursor begins; None if the cursor is in its text."""
    depth, begin = 0, None
    for at, sign in enumerate(content.replace("{{", "  ")):
        if sign == "{":
            depth, begin = depth + 1, at + 1 if depth == 0 else begin
        elif sign == "}":
            depth = max(0, depth - 1)
    return begin if depth else None


def _open_brackets(found: list[Token]) -> list[int]:
    opened: list[int] = []
    for at, token in enumerate(found):
        if token.kind == "sign" and token.text in _OPENING:
            opened.append(at)
        elif token.kind == "sign" and token.text in _CLOSING and opened:
            opened.pop()
    return opened


def _statement_start(found: list[Token], open_at: list[int]) -> int:
    """Return where the statement begins: after the last line end outside brackets."""
    last = open_at[0] if open_at else len(found)
    depth = 0
    for at in range(last - 1, -1, -1):
        token = found[at]
        if token.kind == "sign" and token.text in _CLOSING:
            depth += 1
        elif token.kind == "sign" and token.text in _OPENING:
            depth -= 1
        elif depth == 0 and (token.kind == "line" or token.text == ";"):
            return token.end
    return 0


def _primary_start(found: list[Token], at: int) -> int | None:
    """Return the index of the first token of the expression that ends with token ``at``; None if none ends there."""
    begin = None
    while at >= 0:
        token = found[at]
        if token.text in _CLOSING:
            opening = _matching(found, at)
            if opening is None:
                return begin
            begin, at = opening, opening - 1
            if at < 0 or not _ends_value(found[at]):
                return begin
            continue
        if token.kind not in ("name", "number", "text") or token.text in _NO_VALUE:
            return begin
        begin, at = at, at - 1
        if at < 0 or found[at].text != ".":
            return begin
        at -= 1
    return begin


def _ends_value(token: Token) -> bool:
    return token.text in _CLOSING or (token.kind in ("name", "text") and token.text not in _NO_VALUE)


def _matching(found: list[Token], at: int) -> int | None:
    depth = 0
    for back in range(at, -1, -1):
        if found[back].kind == "sign" and found[back].text in _CLOSING:
            depth += 1
        elif found[back].kind == "sign" and found[back].text in _OPENING:
            depth -= 1
            if depth == 0:
                return back
    return None


def _call(text: str, found: list[Token], at: int, shift: int) -> Call:
    before = [token for token in found[:at] if token.kind not in ("space", "join")]
    begin = _primary_start(before, len(before) - 1) if before and _ends_value(before[-1]) else None
    of = "" if begin is None else text[before[begin].start : before[-1].end]
    inside = [token for token in found[at + 1 :] if token.kind not in ("space", "line", "join")]
    pairs = itertools.pairwise(inside)
    names = frozenset(name.text for name, sign in pairs if name.kind == "name" and sign.text == "=")
    return Call(of, found[at].text, shift + found[at].start, names)


def _begins_argument(before: list[Token]) -> bool:
    rest = [token for token in before if token.kind not in ("space", "line", "join")]
    return bool(rest) and rest[-1].text in ("(", ",", "[")


def name_at(code: str, position: int) -> str:
    """Return the dotted expression at or just before a position; empty if there is none.

    It may hold brackets: ``df["a"].sum``.
    """
    while position < len(code) and (code[position].isalnum() or code[position] == "_"):
        position += 1
    found = [token for token in tokens(code[:position]) if token.kind not in ("space", "join", "line")]
    if not found or not _ends_value(found[-1]) or code[:position][-1:].isspace():
        return ""
    begin = _primary_start(found, len(found) - 1)
    return "" if begin is None else code[found[begin].start : found[-1].end]
