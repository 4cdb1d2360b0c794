"""`log['lines']`: the lines of a text as a read-only sequence that decodes only what is looked at.

Iteration decodes blocks and then runs at C speed.  Single indexing keeps the stretch it decoded last, so that
loops over `range(len(lines))` are cheap; scattered indexing first searches the block, and after a while
builds an array of line starts.  Looking for a whole line goes through the bytes, without making lines of them.
A cell that goes through all lines for the third time gets a plain list of them, which is kept until it ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, count, islice
from operator import add, eq
from typing import TYPE_CHECKING, Any, NoReturn, overload

from .keeping import KEEPER

if TYPE_CHECKING:
    from .text import Text

_CHUNK = 1 << 17  # bytes decoded at a time: the strings made of them stay in the processor's cache
_STRETCH = 1 << 17  # ... to answer for one line, in case that the next ones are asked for
_BACKWARDS = 1000  # lines decoded at a time from the end
_SEARCHED = 1 << 18  # bytes looked through at a time for a whole line
_LIST_SLICE = 100_000  # up to this many lines a slice is a plain list, beyond it a view
_CLOSE = 64  # steps of a slice up to which all lines between are decoded
_SCATTERED = 64  # this many far jumps pay for the array of all line starts
_NEAR = 100  # lines skipped that are no jump
_IN_A_ROW = 8  # with that array, this many lines one after the other are worth a stretch
_PASSES = 2  # strings made so many times as there are lines pay for keeping them
_NOTHING: list[str] = []  # a cache without lines, never changed


class _Missing:
    """A method that only lists have, and what to do instead.

    A `__getattr__` could say so too, but CPython does not specialise the attributes of a class that has one, and a
    loop over `lines[i]` takes a sixth longer.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, lines: Lines | None, owner: type) -> NoReturn:
        raise AttributeError(f"lines are read-only, so there is no {self._name}(); work on a copy: list(lines)")


class Lines(Sequence[str]):
    """Lines `start` (inclusive) to `stop` (exclusive) of a text, without their line ends."""

    __slots__ = (
        "_cache",
        "_cache_end",
        "_cache_start",
        "_content",
        "_crlf",
        "_jumps",
        "_made",
        "_next",
        "_row",
        "_row_end",
        "_size",
        "_start",
        "_starts",
        "_stop",
        "_text",
    )
    __hash__ = None  # type: ignore[assignment]  # like a list
    append, clear, extend, insert, pop, remove, reverse, sort = (_Missing() for _ in range(8))

    def __init__(self, text: Text, start: int = 0, stop: int | None = None) -> None:
        """Args: a text and a range of its lines, which must exist."""
        self._text = text
        self._start, self._stop = start, text.line_count if stop is None else stop
        self._size = self._stop - start
        self._cache = _NOTHING
        self._cache_start = self._size  # index, relative to this view, of the first cached line
        self._cache_end = 0  # byte offset after the last one
        self._next = 0  # the line after the last one that was asked for, or that is cached
        self._row = self._row_end = 0  # lines asked for one after the other, and the one after them
        self._jumps = 0  # far ones so far
        self._made = 0  # strings so far
        self._content, self._crlf = "", text.facts.crlf
        self._starts: array[int] | None = None  # where lines start in the content, once that pays

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        if len(self._cache) == self._size or self._keeps():
            return iter(self._cache)
        return chain.from_iterable(self._counted())

    def __reversed__(self) -> Iterator[str]:
        highs = range(self._stop, self._start, -_BACKWARDS)
        chunks = (self._text.decoded(max(self._start, high - _BACKWARDS), high) for high in highs)
        return chain.from_iterable(map(reversed, chunks))

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[str]: ...
    def __getitem__(self, key: Any) -> Any:
        """One line, or the lines of a slice (a list; from 100,000 lines on another view)."""
        try:
            at = key - self._cache_start
            if at >= 0:
                return self._cache[at]
        except (TypeError, ValueError, IndexError):  # not cached, or no integer
            pass
        return self._fetch(key)

    def __contains__(self, line: object) -> bool:
        return next(self._where(line, 0, self._size), None) is not None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, (list, Lines)):
            return NotImplemented
        return len(self) == len(other) and all(map(eq, self, other))

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

    def copy(self) -> list[str]:
        """A plain list, as `list.copy` gives."""
        return list(self)

    def count(self, line: object) -> int:
        """How many lines equal `line`."""
        return sum(1 for _ in self._where(line, 0, self._size))

    def index(self, line: Any, start: int = 0, stop: int | None = None) -> int:
        """Index of the first line that equals `line`, within a range.  Raises: ValueError if none does."""
        low, high, _ = slice(start, stop).indices(self._size)
        at = next(self._where(line, low, high), None)
        if at is None:
            raise ValueError(f"{line!r} is not among the lines")
        return at

    def as_text(self) -> Text:
        """The text these are the lines of; for a part of them, a private text of that part."""
        if self._size == self._text.line_count:
            return self._text
        return self._text.part(self._start, self._stop)

    def chunks(self, low: int = 0, high: int | None = None) -> Iterator[list[str]]:
        """The lines of a range of this view, in lists of about 128 KiB of text."""
        high = self._size if high is None else high
        return self._text.line_chunks(self._start + low, self._start + max(low, high), _CHUNK)

    def forget(self) -> None:
        """Let go of a list that was kept, and begin to count anew."""
        self._made = 0
        self._cache, self._cache_start, self._cache_end = _NOTHING, self._size, 0

    def _counted(self) -> Iterator[list[str]]:
        for lines in self.chunks():
            self._made += len(lines)
            yield lines

    def _keeps(self) -> bool:
        """Whether it is time to keep all lines as a list, and there is room; then they are in the cache."""
        if self._made < _PASSES * self._size or not self._size:
            return False
        low, high = (self._text.start_of(line) for line in (self._start, self._stop))
        self._made = 0
        if not KEEPER.admit(self, high - low, pure_ascii=self._text.facts.ascii):
            return False
        try:
            self._cache, self._cache_start, self._cache_end = list(chain.from_iterable(self.chunks())), 0, high
        except MemoryError:  # the cell has taken the rest for itself
            return False
        return True

    def _where(self, line: object, low: int, high: int) -> Iterator[int]:
        """Which lines of a range of this view equal `line`."""
        if type(line) is str:
            return (at - self._start for at in _occurrences(self._text, line, self._start + low, self._start + high))
        # Anything else may compare as it likes.
        return (at for at, each in enumerate(chain.from_iterable(self.chunks(low, high)), low) if each == line)

    def _slice(self, key: slice) -> Sequence[str]:
        low, high, step = key.indices(self._size)
        picked = range(low, high, step)
        if len(self._cache) == self._size and len(picked) <= _LIST_SLICE:
            return self._cache[key]
        if step == 1:
            if len(picked) <= _LIST_SLICE:
                return self._text.decoded(self._start + low, self._start + max(low, high))
            return Lines(self._text, self._start + low, self._start + high)
        if abs(step) > _CLOSE or not picked:
            return [self[at] for at in picked]
        first, last = min(picked[0], picked[-1]), max(picked[0], picked[-1])
        lines = list(islice(chain.from_iterable(self.chunks(first, last + 1)), 0, None, abs(step)))
        return lines if step > 0 else lines[::-1]

    def _fetch(self, key: Any) -> Any:
        """What is not cached, or is no plain number.  Written for scattered access: as few steps as can be."""
        starts, size = self._starts, self._size
        if starts is None or len(self._cache) == size or key.__class__ is not int:
            return self._fetch_otherwise(key)
        at = key if key >= 0 else key + size
        if not 0 <= at < size:
            raise IndexError("line index out of range")
        if at == self._next and self._goes_on(at):
            return self._decode_stretch(at)
        self._next = at + 1
        if self._cache is not _NOTHING:  # asking it in vain takes longer than all the rest
            self._cache, self._cache_start = _NOTHING, size
        line = self._start + at
        found: str = self._content[starts[line] : starts[line + 1] - 1]
        return found.removesuffix("\r") if self._crlf else found

    def _goes_on(self, at: int) -> bool:
        """Whether lines are asked for one after the other, so that it is time to decode many at once."""
        if at != self._row_end:
            self._row = 0
        self._row += 1
        self._row_end = at + 1
        return self._row > _IN_A_ROW or self._cache is not _NOTHING

    def _fetch_otherwise(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._slice(key)
        try:
            at = int(key.__index__())
        except AttributeError:
            raise TypeError(f"line indices must be integers or slices, not {type(key).__name__}") from None
        if self._starts is not None and len(self._cache) != self._size:
            return self._fetch(at)
        at = at if at >= 0 else at + self._size
        if not 0 <= at < self._size:
            raise IndexError("line index out of range")
        return self._look(at)

    def _look(self, at: int) -> str:
        """A line, by what is cached and the index of blocks."""
        cached = at - self._cache_start
        if 0 <= cached < len(self._cache):  # it was asked for by its number from the end
            return self._cache[cached]
        if not 0 <= cached - len(self._cache) < _NEAR:
            self._jumps += 1
            if self._jumps > _SCATTERED and self._text.line_count > 2 * _SCATTERED:
                self._content, self._starts = self._text.content, _line_starts(self._text)
                return str(self._fetch(at))
        return self._decode_stretch(at)

    def _decode_stretch(self, at: int) -> str:
        if self._keeps():
            return self._cache[at]
        text = self._text
        follows = at == self._cache_start + len(self._cache)
        low = self._cache_end if follows else text.start_of(self._start + at)
        self._cache, self._cache_end = text.stretch(low, text.start_of(self._stop), _STRETCH)
        self._cache_start, self._next = at, at + len(self._cache)
        self._made += len(self._cache)
        return self._cache[0]


def _line_starts(text: Text) -> array[int]:
    """Where in `content` each line starts, and last where one after the last would: 1 is for the newline."""
    starts = array("I" if text.facts.chars + 1 < 1 << 32 else "Q", [0])
    low = at = 0
    while low < text.size:
        high = text.end_of_stretch(low, text.size, _CHUNK)
        lengths = list(map(len, str(text.view[low:high], "utf-8").split("\n")))
        if high < text.size or not text.facts.open_end:
            lengths.pop()  # what follows the last newline
        starts.extend(map(add, accumulate(lengths), count(at + 1)))
        low, at = high, starts[-1]
    return starts


def _occurrences(text: Text, line: str, start: int, stop: int) -> Iterator[int]:
    """Numbers of the lines, of those from `start` to `stop`, that are `line`; found without decoding any."""
    if "\n" in line:
        return
    needle = b"\n" + line.encode(errors="surrogatepass") + b"\n"
    low, end = text.start_of(start), text.start_of(stop)
    while low < end:
        high = text.end_of_stretch(low, end, _SEARCHED)
        piece = b"\n" + bytes(text.view[low:high])
        if high == text.size and text.facts.open_end:
            piece += b"\n"
        if text.facts.crlf:
            piece = piece.replace(b"\r\n", b"\n")
        number, passed, at = -1, 0, piece.find(needle)
        while at >= 0:
            number = (text.index.line_of(low) if number < 0 else number) + piece.count(b"\n", passed, at)
            yield number
            passed, at = at, piece.find(needle, at + len(needle) - 1)
        low = high
