"""`log['lines']`: the lines of a text as a read-only sequence that decodes only what is looked at.

Iteration decodes blocks and then runs at C speed.  Single indexing keeps the stretch it decoded last, so that
loops over `range(len(lines))` are cheap; scattered indexing first searches the block, and after a while
builds an array of line starts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NoReturn, overload

if TYPE_CHECKING:
    from .text import Text

_CHUNK = 1 << 16  # bytes decoded at a time: the strings made of them stay in the processor's cache
_LIST_SLICE = 100_000  # up to this many lines a slice is a plain list, beyond it a view
_SCATTERED = 64  # this many far jumps pay for the array of all line starts


class Lines(Sequence[str]):
    """Lines `start` (inclusive) to `stop` (exclusive) of a text, without their line ends."""

    __slots__ = ("_cache", "_cache_end", "_cache_start", "_jumps", "_start", "_starts", "_stop", "_text")
    __hash__ = None  # type: ignore[assignment]  # like a list

    def __init__(self, text: Text, start: int = 0, stop: int | None = None) -> None:
        """Args: a text and a range of its lines, which must exist."""
        self._text = text
        self._start, self._stop = start, text.line_count if stop is None else stop
        self._cache: list[str] = []
        self._cache_start = 0  # index, relative to this view, of the first cached line
        self._cache_end = 0  # byte offset after the last one
        self._jumps = 0
        self._starts: array[int] | None = None

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[str]:
        if len(self._cache) == self._stop - self._start and not self._cache_start:
            return iter(self._cache)
        return chain.from_iterable(self.chunks())

    def __reversed__(self) -> Iterator[str]:
        for high in range(len(self), 0, -1000):
            yield from reversed(self._text.decoded(self._start + max(0, high - 1000), self._start + high))

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[str]: ...
    def __getitem__(self, key: Any) -> Any:
        """One line, or the lines of a slice (a list; from 100,000 lines on another view)."""
        if key.__class__ is int:
            at = key - self._cache_start
            if 0 <= at < len(self._cache):
                return self._cache[at]
            return self._fetch(key)
        if isinstance(key, slice):
            return self._slice(key)
        try:
            return self._fetch(key.__index__())
        except AttributeError:
            raise TypeError(f"line indices must be integers or slices, not {type(key).__name__}") from None

    def __contains__(self, line: object) -> bool:
        return any(line in chunk for chunk in self.chunks())

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, (list, Lines)):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __add__(self, other: Iterable[str]) -> list[str]:
        if not isinstance(other, (list, Lines)):
            return NotImplemented
        return [*self, *other]

    def __radd__(self, other: Iterable[str]) -> list[str]:
        if not isinstance(other, list):
            return NotImplemented
        return [*other, *self]

    def __mul__(self, times: int) -> list[str]:
        return list(self) * times

    __rmul__ = __mul__

    def __repr__(self) -> str:
        first = f"; first: {self[0][:80]!r}" if len(self) else ""
        return f"<{len(self):,} lines{first}>"

    def __copy__(self) -> Lines:
        return self

    def __deepcopy__(self, memo: object) -> Lines:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as the plain list it stands for."""
        return list, (list(self),)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _MUTATORS:
            raise AttributeError(f"lines are read-only, so there is no {name}(); work on a copy: list(lines)")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def copy(self) -> list[str]:
        """A plain list, as `list.copy` gives."""
        return list(self)

    def count(self, line: object) -> int:
        """How many lines equal `line`."""
        return sum(chunk.count(line) for chunk in self.chunks()) if isinstance(line, str) else 0

    def index(self, line: Any, start: int = 0, stop: int | None = None) -> int:
        """Index of the first line that equals `line`, within a range.  Raises: ValueError if none does."""
        low, high, _ = slice(start, stop).indices(len(self))
        base = low
        for chunk in self.chunks(low, high):
            if line in chunk:
                return base + chunk.index(line)
            base += len(chunk)
        raise ValueError(f"{line!r} is not among the lines")

    def as_text(self) -> Text:
        """The text these are the lines of; for a part of them, a private text of that part."""
        if len(self) == self._text.line_count:
            return self._text
        return self._text.part(self._start, self._stop)

    def chunks(self, low: int = 0, high: int | None = None) -> Iterator[list[str]]:
        """The lines of a range of this view, in lists of about 64 KiB of text."""
        high = len(self) if high is None else high
        return self._text.line_chunks(self._start + low, self._start + max(low, high), _CHUNK)

    def _slice(self, key: slice) -> Sequence[str]:
        low, high, step = key.indices(len(self))
        if step != 1:
            return [self[at] for at in range(low, high, step)]
        high = max(low, high)
        if high - low <= _LIST_SLICE:
            return self._text.decoded(self._start + low, self._start + high)
        return Lines(self._text, self._start + low, self._start + high)

    def _fetch(self, key: int) -> str:
        at = key + len(self) if key < 0 else key
        if not 0 <= at < len(self):
            raise IndexError("line index out of range")
        cached = at - self._cache_start
        if 0 <= cached < len(self._cache):
            return self._cache[cached]
        follows = 0 <= cached - len(self._cache) < 1000
        if not follows:
            self._jumps += 1
            if self._jumps > _SCATTERED and self._text.line_count > 2 * _SCATTERED:
                return self._jump(at)
        return self._decode_stretch(at)

    def _decode_stretch(self, at: int) -> str:
        text = self._text
        follows = at == self._cache_start + len(self._cache) and self._cache_end
        low = self._cache_end if follows else text.start_of(self._start + at)
        self._cache, self._cache_end = text.stretch(low, text.start_of(self._stop), _CHUNK)
        self._cache_start = at
        return self._cache[0]

    def _jump(self, at: int) -> str:
        if self._starts is None:
            self._starts = _line_starts(self._text)
        line = self._start + at
        start, stop = self._starts[line], self._starts[line + 1]
        found = str(self._text.view[start:stop], "utf-8").removesuffix("\n")
        return found.removesuffix("\r")


_MUTATORS = frozenset({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"})


def _line_starts(text: Text) -> array[int]:
    """Byte offset of every line and, last, the size of the text."""
    starts = array("I" if text.size < 1 << 32 else "Q", [0])
    for low in range(0, text.size, _CHUNK):
        pieces = bytes(text.view[low : low + _CHUNK]).split(b"\n")
        pieces.pop()  # the beginning of a line that ends in the next chunk
        ends = accumulate((len(piece) + 1 for piece in pieces), initial=low)
        next(ends)
        starts.extend(ends)
    if text.facts.open_end:
        starts.append(text.size)
    return starts
