"""The rules of `_checker` a second time, in Python and by names of opcodes: what the fuzz compares it with."""

from __future__ import annotations

import pickletools
from collections.abc import Sequence

VALUE, LIST, DICT, SET, TUPLE, HOME, NAME, MAKER, BUFFER = range(9)
_PLAIN = """
    NONE NEWTRUE NEWFALSE BININT1 BININT2 BININT BINFLOAT SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8 LONG1 LONG4
    SHORT_BINUNICODE BINUNICODE BINUNICODE8
""".split()
_SIZED = {"C": 1, "\x8a": 1, "B": 4, "\x8b": 4, "\x8e": 8, "\x96": 8, "\x8c": 1, "X": 4, "\x8d": 8}
_FIXED = {"K": 1, "M": 2, "J": 4, "G": 8}
_EMPTY = {"EMPTY_LIST": LIST, "EMPTY_DICT": DICT, "EMPTY_SET": SET, "EMPTY_TUPLE": TUPLE}
_COUNTED = {"TUPLE1": (1, TUPLE), "TUPLE2": (2, TUPLE), "TUPLE3": (3, TUPLE)}
_INTO = {
    "APPEND": (1, LIST),
    "SETITEM": (2, DICT),
    "APPENDS": (None, LIST),
    "SETITEMS": (None, DICT),
    "ADDITEMS": (None, SET),
}
_MARKED = {"TUPLE": TUPLE, "FROZENSET": VALUE}
_CODES = {opcode.code: opcode.name for opcode in pickletools.opcodes}


class Unsound(Exception):
    """The pickles break a rule."""


class _Walk:
    def __init__(self, makers: Sequence[str], home: str, buffers: int) -> None:
        self.makers, self.home, self.buffers = [name.encode() for name in makers], home.encode(), buffers
        self.stack: list[int] = []
        self.marks: list[int] = []
        self.memo: list[int] = []

    def take(self, count: int | None) -> None:
        if count is None:
            if not self.marks:
                raise Unsound
            start = self.marks.pop()
        else:
            start = len(self.stack) - count
            if start < (self.marks[-1] if self.marks else 0):
                raise Unsound
        if MAKER in self.stack[start:]:
            raise Unsound
        del self.stack[start:]

    def expect(self, *tags: int) -> None:
        start = len(self.stack) - len(tags)
        if start < (self.marks[-1] if self.marks else 0) or self.stack[start:] != list(tags):
            raise Unsound

    def step(self, name: str, argument: bytes) -> None:  # noqa: C901, PLR0912, PLR0915
        """Follow one opcode."""
        push = self.stack.append
        if name in _PLAIN:
            is_text = "UNICODE" in name
            push(HOME if is_text and argument == self.home else NAME if is_text and argument in self.makers else VALUE)
        elif name == "NEXT_BUFFER":
            self.buffers -= 1
            if self.buffers < 0:
                raise Unsound
            push(BUFFER)
        elif name == "READONLY_BUFFER":
            self.expect(BUFFER)
        elif name == "MEMOIZE":
            self.expect(*self.stack[-1:] or [VALUE])
            self.memo.append(self.stack[-1])
        elif name in ("BINGET", "LONG_BINGET"):
            if int.from_bytes(argument, "little") >= len(self.memo):
                raise Unsound
            push(self.memo[int.from_bytes(argument, "little")])
        elif name == "MARK":
            self.marks.append(len(self.stack))
        elif name in _EMPTY:
            push(_EMPTY[name])
        elif name in _COUNTED:
            self.take(_COUNTED[name][0])
            push(TUPLE)
        elif name in _INTO:
            self.take(_INTO[name][0])
            self.expect(_INTO[name][1])
        elif name in _MARKED:
            self.take(None)
            push(_MARKED[name])
        elif name == "POP":
            self.take(1)
        elif name == "POP_MARK":
            self.take(None)
        elif name == "STACK_GLOBAL":
            self.expect(HOME, NAME)
            self.stack[-2:] = [MAKER]
        elif name == "REDUCE":
            self.expect(MAKER, TUPLE)
            self.stack[-2:] = [VALUE]
        elif name == "STOP":
            if len(self.stack) != 1 or self.marks:
                raise Unsound
            self.take(1)
        elif name == "PROTO":
            if argument != b"\x05" or self.stack:
                raise Unsound
        elif name != "FRAME":
            raise Unsound


def is_sound(data: bytes, makers: Sequence[str], home: str, buffers: int) -> bool:
    """Whether the pickles keep to the rules."""
    walk, at = _Walk(makers, home, buffers), 0
    try:
        while at < len(data):
            code = chr(data[at])
            at += 1
            argument = b""
            width = _FIXED.get(code, 1 if code in "h\x80" else 4 if code == "j" else 8 if code == "\x95" else 0)
            if code in _SIZED:
                size = int.from_bytes(_take(data, at, _SIZED[code]), "little")
                at += _SIZED[code]
                argument = _take(data, at, size)
                at += size
            else:
                argument = _take(data, at, width)
                at += width
            if code == "\x95" and int.from_bytes(argument, "little") > len(data) - at:
                return False
            walk.step(_CODES.get(code, ""), argument)
    except Unsound:
        return False
    return not walk.stack and not walk.marks


def _take(data: bytes, at: int, count: int) -> bytes:
    if count > len(data) - at:
        raise Unsound
    return data[at : at + count]
