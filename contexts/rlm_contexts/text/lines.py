"""`log['lines']`: the lines of a text as a read-only sequence that decodes only what is read.

Iteration decodes blocks and then runs at C speed. Single indexing keeps the stretch that it decoded last, so that loops
over `range(len(lines))` are cheap. Scattered indexing searches a block first, and after some jumps builds an array of
line starts. A search for a whole line compares bytes, without creating strings. Threads may use the same lines: values
that belong together are in one tuple, which is read and replaced at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import eq
from typing import Any, NoReturn, overload

from rlm_contexts.text._native import equal_lines, line_starts
from rlm_contexts.text.text import Text

_STRETCH = 1 << 17  # bytes decoded for a single line, because the next ones are usually read too
_BACKWARDS = 1000  # lines decoded at a time from the end
_SEARCHED = 1 << 18  # bytes searched at a time for a whole line
_LIST_SLICE = 100_000  # up to this many lines a slice is a plain list, beyond it a view
_CLOSE = 64  # up to this step, a slice decodes all lines between
_SCATTERED = 64  # this many far jumps pay for the array of all line starts
_NEAR = 100  # skipping up to this many lines is not a jump
_SHORT = 4000  # lines of up to about this many characters are printed whole
_SHOWN = 10  # lines printed from each end of longer ones
_LINE = 200  # characters printed of each of them


class _Missing:
    """Raises the error for a method that only lists have, with the way to do it instead.

    A `__getattr__` could do the same. But CPython does not specialise attribute reads on a class that has one, and a
    loop over `lines[i]` takes a sixth longer.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, lines: Lines | None, owner: type) -> NoReturn:
        raise AttributeError(f"lines are read-only, so there is no {self._name}(); work on a copy: list(lines)")


class Lines(Sequence[str]):
    """Lines `start` (inclusive) to `stop` (exclusive) of a text, without their line ends."""

    __slots__ = (
        "_end",
        "_jumps",
        "_near",
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
        self._near: tuple[int, list[str]] = -1, []  # the lines that were decoded last, and the index of the first
        self._end = 0  # the byte offset behind them
        self._jumps = 0  # far ones so far
        self._starts: tuple[str, array[int]] | None = None  # the content, and where in it the text's lines start

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, key: int) -> str: ...

    @overload
    def __getitem__(self, key: slice) -> Sequence[str]: ...

    def __getitem__(self, key: Any) -> Any:
        """Return items as a list does, but a slice of more than 100,000 lines is a view."""
        # Loops over indexes spend their time here. Numbers of other types, such as numpy's, may wrap around in sums.
        if type(key) is int:
            first, lines = self._near
            if key >= first:
                try:
                    return lines[key - first]
                except IndexError:
                    pass
            if self._starts is not None and 0 <= key < self._size:
                content, starts = self._starts
                at = self._start + key
                line = content[starts[at] : starts[at + 1] - 1]
                return line.removesuffix("\r") if self._text.facts.crlf else line
        return self._slice(key) if isinstance(key, slice) else self._line(key)

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.chunks())

    def __reversed__(self) -> Iterator[str]:
        highs = range(self._stop, self._start, -_BACKWARDS)
        chunks = (self._text.decoded(max(self._start, high - _BACKWARDS), high) for high in highs)
        return chain.from_iterable(map(reversed, chunks))

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
        """Return what a list would print, if short; otherwise the first and the last lines, and their number."""
        size = self._text.start_of(self._stop) - self._text.start_of(self._start)
        if size + len("'', ") * self._size <= _SHORT:
            return repr(self[:])
        if self._size <= 2 * _SHOWN:
            return f"[{self._rows(0, self._size)}]"
        left = f"… {self._size - 2 * _SHOWN:,} more of {self._size:,} lines: slice them, or search them with scan …"
        return f"[{self._rows(0, _SHOWN)},\n {left}\n {self._rows(self._size - _SHOWN, self._size)}]"

    def _rows(self, low: int, high: int) -> str:
        """Return lines as a list prints them, one per row; of a long one only the beginning is decoded."""
        return ",\n ".join(map(self._row, range(self._start + low, self._start + high)))

    def _row(self, line: int) -> str:
        page = self._text.peek(line, 1, _LINE)
        size = self._text.start_of(line + 1) - self._text.start_of(line)
        return f"{page.text!r}… (a line of {size:,} bytes)" if page.cut_line else repr(page.text)

    def __copy__(self) -> Lines:
        return self

    def __deepcopy__(self, memo: object) -> Lines:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the plain list it stands for."""
        return list, (list(self),)

    def copy(self) -> list[str]:
        """Return a plain list, as `list.copy` does."""
        return list(self)

    def count(self, line: object) -> int:
        """Return how many lines equal `line`."""
        return sum(1 for _ in self._where(line, 0, self._size))

    def index(self, line: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first line that equals `line`, within a range.  Raises: ValueError if none does."""
        low, high, _ = slice(start, stop).indices(self._size)
        at = next(self._where(line, low, high), None)
        if at is None:
            raise ValueError(f"{line!r:.200} is not one of the lines")
        return at

    def as_text(self) -> Text:
        """Return the text these are the lines of; for a part of them, a private text of that part."""
        if self._size == self._text.line_count:
            return self._text
        return self._text.part(self._start, self._stop)

    def chunks(self, low: int = 0, high: int | None = None) -> Iterator[list[str]]:
        """Yield the lines of a range of this view, in lists of about 128 KiB of text."""
        high = self._size if high is None else high
        return self._text.line_chunks(self._start + low, self._start + max(low, high))

    def _where(self, line: object, low: int, high: int) -> Iterator[int]:
        """Yield which lines of a range of this view equal `line`."""
        if type(line) is str:
            return (at - self._start for at in _occurrences(self._text, line, self._start + low, self._start + high))
        # An object of another type may define its own equality, so it is compared with real strings.
        return (at for at, each in enumerate(chain.from_iterable(self.chunks(low, high)), low) if each == line)

    def _slice(self, key: slice) -> Sequence[str]:
        low, high, step = key.indices(self._size)
        picked = range(low, high, step)
        if step == 1:
            if len(picked) <= _LIST_SLICE:
                return self._text.decoded(self._start + low, self._start + max(low, high))
            return Lines(self._text, self._start + low, self._start + high)
        if abs(step) > _CLOSE or not picked:
            return [self[at] for at in picked]
        first, last = min(picked[0], picked[-1]), max(picked[0], picked[-1])
        lines = list(islice(chain.from_iterable(self.chunks(first, last + 1)), 0, None, abs(step)))
        return lines if step > 0 else lines[::-1]

    def _line(self, key: Any) -> str:
        """Return a line that is not decoded yet, or whose index is not a plain `int` from 0 on."""
        try:
            number = int(key.__index__())
        except AttributeError:
            raise TypeError(f"line indices must be integers or slices, not {type(key).__name__}") from None
        at = number if number >= 0 else number + self._size
        if not 0 <= at < self._size:
            raise IndexError("line index out of range")
        if type(key) is not int or number < 0:
            return self[at]
        if not 0 <= at - self._after < _NEAR:
            self._jumps += 1
            if self._jumps > _SCATTERED and self._text.line_count > 2 * _SCATTERED:
                self._starts = self._text.content, _line_starts(self._text)
                return self[at]
        return self._decode_stretch(at)

    @property
    def _after(self) -> int:
        """Return the index after those that were decoded last."""
        first, lines = self._near
        return first + len(lines)

    def _decode_stretch(self, at: int) -> str:
        text = self._text
        low = self._end if at == self._after else text.start_of(self._start + at)
        lines, self._end = text.stretch(low, text.start_of(self._stop), _STRETCH)
        self._near = at, lines
        return lines[0]


def span_of(lines: Lines) -> tuple[Text, int, int]:
    """Return the text of the lines, the first of them, and the one after the last."""
    return lines._text, lines._start, lines._stop


def _line_starts(text: Text) -> array[int]:
    """Return the position in `content` where each line starts, and where one more would start after a final newline."""
    typecode = "I" if text.facts.chars + 1 < 1 << 32 else "Q"
    starts = array(typecode, bytes(array(typecode).itemsize * (text.line_count + 1)))
    low, line, at = 0, 1, 0
    while low < text.size:
        high = text.end_of_stretch(low, text.size, _SEARCHED)
        line, at = line_starts(text.view[low:high], starts, line, at, text.facts.ascii)
        low = high
    if text.facts.open_end:
        starts[line] = at + 1
    return starts


def _occurrences(text: Text, line: str, start: int, stop: int) -> Iterator[int]:
    """Yield the numbers of the lines from `start` to `stop` that equal `line`, found without decoding any."""
    if "\n" in line:
        return
    wanted = line.encode(errors="surrogatepass")
    low, end = text.start_of(start), text.start_of(stop)
    while low < end:
        high = text.end_of_stretch(low, end, _SEARCHED)
        found, passed = equal_lines(text.view[low:high], wanted, text.facts.crlf)
        yield from (start + at for at in found)
        start, low = start + passed, high
