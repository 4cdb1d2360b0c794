"""The inner loops over lines, in C: what they answer, whoever calls them and with whatever."""

import gc
import os
import subprocess
import sys
import tracemalloc
import weakref
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import line_loops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_kernel.contexts import _native
from rlm_kernel.contexts.text import Text

PIECE = "\n".join(f"{number} {'x' * (number % 300)}" for number in range(600)) + "\n"
TEXTS = st.text(st.sampled_from("ab\n\n\r\0é€\U0001f600")) | st.text("ab\r\n")
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@settings(max_examples=500)
@given(TEXTS, st.sampled_from(["", "a", "ab", "é", "a\r"]), st.integers(1, 9), st.integers(0, 1 << 33))
def test_they_answer_what_plain_python_does(text: str, wanted: str, block: int, first: int) -> None:
    """K-16: any text, with any line ends, cut into blocks of any size."""
    view, line = memoryview(text.encode()), wanted.encode()
    crlf = "\r" in text
    for large in (False, True):
        assert _native.split(view, crlf, large) == line_loops.split(view, crlf, large)
    assert _native.equal_lines(view, line, crlf) == line_loops.equal_lines(view, line, crlf)
    assert _native.ranks(view, block, first) == line_loops.ranks(view, block, first)
    for code in "IQ":
        found = []
        for loops in (_native, line_loops):
            starts = array(code, bytes(array(code).itemsize * (text.count("\n") + 2)))
            answer = loops.line_starts(view, starts, 1, first if code == "Q" else 7, text.isascii())
            found.append((answer, starts))
        assert found[0] == found[1]


def _row(base: type) -> Any:
    """What uses a cache: it says which keys were not answered at once."""
    body = {"__slots__": (), "__len__": lambda _: 0, "_fetch": lambda _, key: ("asked for", key)}
    return type("Row", (base, Sequence), body)()


def test_a_cache_answers_what_it_has_and_asks_for_the_rest() -> None:
    """Numbers that are not there, negative, huge, or no plain integers are asked for."""
    row = _row(_native.LineCache)
    assert row[0] == ("asked for", 0)
    row._answer(["ten", "eleven"], 10)
    assert [row[10], row[11]] == ["ten", "eleven"]
    for key in (9, 12, -1, 1 << 80, -(1 << 80), slice(1), "10"):
        assert row[key] == ("asked for", key)
    content = "zero\r\none\ntwo"
    row._cut_from(content, array("I", [0, 6, 10, 14]), 0, 3, True)
    assert [row[0], row[1], row[2], row[10]] == ["zero", "one", "two", "ten"]
    assert row[3] == ("asked for", 3)
    row._cut_from(content, array("Q", [0, 6, 10, 14]), 1, 2, False)
    assert [row[0], row[1], row[2]] == ["one", "two", ("asked for", 2)]


def test_a_narrow_number_of_numpy_is_asked_for() -> None:
    """It would wrap around or overflow, and find another line."""
    row = _row(_native.LineCache)
    for key, first in ((np.int8(-100), 100), (np.uint8(3), 300), (np.bool_(True), 0)):
        row._answer(["another"] * 200, first)
        assert row[key] == ("asked for", key)


def test_whatever_a_cache_is_told_the_process_lives() -> None:
    """Code in a session can call what begins with one underscore; it gets errors, nothing else."""
    assert _ends_well(
        """
import gc, sys
from array import array
from rlm_kernel.contexts import _native
from rlm_kernel.contexts.text import Text

def tried(call, *arguments):
    try:
        return call(*arguments)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError, BufferError, UnicodeDecodeError) as error:
        return error

lines = Text.from_bytes(b"a\\nb\\nc\\n" * 99).lines
for cache in (None, 5, (), "abc", [], [lines], lines):
    for first in (0, 1, -1, -sys.maxsize, sys.maxsize, 1 << 70, "x"):
        tried(lines._answer, cache, first)
        for key in (0, 1, -1, sys.maxsize, -sys.maxsize - 1, 1 << 70, None, "a", slice(None)):
            tried(lines.__getitem__, key)
raw = _native.LineCache()
assert isinstance(tried(raw.__getitem__, 0), AttributeError)
for starts in (array("I", [0, 900, 5]), array("q", [-5, -9, -1]), array("Q", [1 << 63, 0, 2]), b"x" * 7):
    for start, size in ((0, 1), (0, 2), (1, 1), (2, 0), (-1, 1), (0, 1 << 60), (1 << 62, 1 << 62)):
        tried(raw._cut_from, "text", starts, start, size, True)
        for key in (0, 1, 2, 1 << 62):
            tried(raw.__getitem__, key)
assert isinstance(tried(raw._cut_from, b"text", array("I", [0, 1]), 0, 1, True), TypeError)
own = array("I", [0, 2, 4])
raw._cut_from("a\\nb\\n", own, 0, 2, False)
assert isinstance(tried(own.append, 1), BufferError)  # it would move what lines are cut by
for arguments in ((), (b"",), ("text", False, False), (b"\\xff", False, True), (memoryview(b"abcd")[::2], 0, 0)):
    assert isinstance(tried(_native.split, *arguments), Exception)
assert isinstance(tried(_native.ranks, b"ab", 0, 0), ValueError)
assert isinstance(tried(_native.line_starts, b"a\\n", b"read-only", 0, 0, True), TypeError)
few = array("I", [7, 7])
assert _native.line_starts(b"\\n" * 9, few, 1, 0, True) == (10, 9)
assert few.tolist() == [7, 1]
_native.line_starts(b"\\n" * 9, few, -3, 0, True)
assert few.tolist() == [4, 5]
_native.line_starts(b"\\n" * 9, few, sys.maxsize - 3, 0, True)
assert few.tolist() == [4, 5]
odd = memoryview(bytearray(25))[1:].cast("Q")
_native.line_starts(b"a\\n" * 2, odd, 1, 0, True)
raw._cut_from("a\\na\\n", odd, 0, 2, False)
assert raw[1] == "a"
raw._answer([raw], 0)
del raw, lines
gc.collect()
"""
    )


def test_a_text_that_changes_meanwhile_makes_no_broken_strings() -> None:
    """A thread that reads a file into a buffer holds no lock; a false ASCII string has CPython read beyond tables."""
    code = r"""
import os, random, threading
from rlm_kernel.contexts import _native
whole = (b"a" * 99 + b"\n") * 20_000
text = bytearray(whole)
end = memoryview(text)[-60_000:]
arriving, sent = os.pipe()

def fed():
    while os.readv(arriving, [end]):
        end[:] = whole[-60_000:]

if not os.fork():
    os.close(arriving)
    try:
        while True:
            for _ in range(random.randrange(40_000)):  # at any moment of the other's work
                pass
            os.write(sent, b"\xff" * 60_000)
    finally:
        os._exit(0)
threading.Thread(target=fed, daemon=True).start()
for _ in range(700):
    try:
        lines = _native.split(text, False, False)
    except UnicodeDecodeError:
        continue
    assert all(max(line.encode()) < 0x80 for line in lines[-700:])
os._exit(0)
"""
    assert _ends_well(code)


def test_what_goes_may_ask_for_lines() -> None:
    """Code that runs when the old content goes finds the new one, and what it puts there itself stays whole."""
    gone = []

    class Content(str):
        __slots__ = ()

        def __del__(self) -> None:
            row._cut_from("from its end", Starts("I", [0, 5, 9]), 0, 2, False)

    class Starts(array):  # type: ignore[type-arg]
        def __del__(self) -> None:
            gone.append(row[0])

    row = _row(_native.LineCache)
    row._cut_from(Content("old"), array("I", [0, 1]), 0, 1, False)
    row._cut_from("new", array("I", [0, 4]), 0, 1, False)
    assert row[0] == "from"
    assert gone == []
    row._cut_from("newest", array("I", [0, 7]), 0, 1, False)
    assert gone == ["newest"]


def test_a_cycle_through_the_content_is_collected() -> None:
    """As one through the list of answers is."""

    class Content(str):
        __slots__ = ("__weakref__", "row")
        row: Any

    content, row = Content("text"), _row(_native.LineCache)
    content.row = row
    row._cut_from(content, array("I", [0, 5]), 0, 1, False)
    ended = weakref.ref(content)
    del content, row
    gc.collect()
    assert ended() is None


def test_a_long_chain_of_caches_goes_as_other_objects_do() -> None:
    """One that holds the next: not by as many calls within each other."""
    code = """
from rlm_kernel.contexts import _native
first = None
for _ in range(1_000_000):
    before, first = first, _native.LineCache()
    first._answer([before], 0)
del before
del first
"""
    assert _ends_well(code)


def test_nothing_leaks() -> None:
    """Neither what is answered nor what is refused stays."""
    view = memoryview(PIECE.encode())

    def all_of_it() -> None:
        _native.split(view, True, True)
        _native.equal_lines(view, b"1 x", False)
        _native.ranks(view, 100, 0)
        starts = array("I", bytes(4 * 601))
        _native.line_starts(view, starts, 1, 0, True)
        row = _row(_native.LineCache)
        row._answer([row], 600)
        row._cut_from(PIECE, starts, 0, 600, False)
        assert [row[0], row[599][:3]] == ["0 ", "599"]
        with pytest.raises(UnicodeDecodeError):
            _native.split(b"good\n\xff", False, True)

    for _ in range(20):
        all_of_it()
    gc.collect()
    tracemalloc.start()
    try:
        all_of_it()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            all_of_it()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - before < 10_000  # less than one of those lists takes
    finally:
        tracemalloc.stop()


def test_the_system_gives_large_pages() -> None:
    """The purpose of it: strings that are kept lie in memory that the system has cleared in large pages."""
    if not ENABLED.exists() or "[never]" in ENABLED.read_text():
        pytest.skip("this system gives no large pages")
    # A process that has run for long has room among its own pages; a new one has not.
    code = """
import re
from rlm_kernel.contexts import _native
piece = b"".join(b"%d %s\\n" % (number, b"x" * (number % 300)) for number in range(600))
many = [_native.split(piece, False, True) for _ in range(300)]
maps = re.findall("^([0-9a-f]+)-([0-9a-f]+) .*\\n(?:[A-Z].*\\n)*?VmFlags:.* hg", open("/proc/self/smaps").read(), re.M)
advised = [range(int(low, 16), int(high, 16)) for low, high in maps]
kept = [id(line) for lines in many for line in lines]
assert sum(any(address in one for one in advised) for address in kept) > len(kept) / 2
"""
    assert _ends_well(code)


def test_memory_goes_back_when_the_lines_go() -> None:
    """CPython returns such arenas as it returns its own; what stays is what is spare."""
    code = """
from rlm_kernel.contexts import _native
piece = b"".join(b"%d %s\\n" % (number, b"x" * (number % 300)) for number in range(600))
def advised():
    rows = open("/proc/self/smaps").read().splitlines()
    sizes = [int(row.split()[1]) for row in rows if row.startswith("Size:")]
    flags = [row for row in rows if row.startswith("VmFlags:")]
    return sum(size for size, each in zip(sizes, flags, strict=True) if " hg" in each) << 10
many = [_native.split(piece, False, True) for _ in range(600)]
assert advised() > 60 << 20
del many
assert advised() < 30 << 20
"""
    assert _ends_well(code)


def test_a_copy_of_the_process_has_its_own() -> None:
    """Sessions are copies: each goes on from the same state, in memory of its own."""
    expected = PIECE.split("\n")[:-1]
    many = [_native.split(PIECE.encode(), False, True) for _ in range(20)]
    child = os.fork()
    if not child:
        try:
            more = [_native.split(PIECE[5:].encode(), False, True) for _ in range(100)]
            same = all(lines == PIECE[5:].split("\n")[:-1] for lines in more) and many[-1] == expected
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    more = [_native.split(PIECE.encode(), False, True) for _ in range(100)]
    assert os.waitpid(child, 0)[1] == 0
    assert all(lines == expected for lines in many + more)


def test_without_memory_to_spare_lines_are_made_as_always() -> None:
    """8 MiB are asked for at a time; when a limit refuses that, nobody notices."""
    code = """
import resource
from rlm_kernel.contexts import _native
piece = b"".join(b"%d %s\\n" % (number, b"x" * (number % 300)) for number in range(600))
expected = piece.decode().split("\\n")[:-1]
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used + (6 << 20), used + (6 << 20)))
many = [_native.split(piece, False, True) for _ in range(30)]
assert all(lines == expected for lines in many)
try:
    while True:
        many.append(_native.split(piece, False, True))
except MemoryError:
    many.clear()
assert _native.split(piece, False, True) == expected
"""
    assert _ends_well(code)


def test_a_system_without_large_pages_serves_as_well() -> None:
    """The advice is then without effect."""
    code = """
import ctypes
assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
from rlm_kernel.contexts import _native
piece = b"".join(b"%d\\n" % number for number in range(9000))
many = [_native.split(piece, False, True) for _ in range(50)]
assert all(lines == piece.decode().split() for lines in many)
"""
    assert _ends_well(code)


def test_the_collector_may_run_code_meanwhile() -> None:
    """A finaliser that makes lines itself, in the middle of others, which an error interrupts."""
    made = []

    class Last:
        def __del__(self) -> None:
            made.append(_native.split(PIECE.encode(), False, True))

    old = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(50):
            loop: list[object] = [Last()]
            loop.append(loop)
            del loop
            assert _native.split(PIECE.encode(), False, True) == PIECE.split("\n")[:-1]
            with pytest.raises(UnicodeDecodeError):
                _native.split(b"good\n\xff", False, True)
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert len(made) == 50
    assert all(lines == PIECE.split("\n")[:-1] for lines in made)


def test_lines_hold_on_to_what_they_are_cut_from() -> None:
    """Scattered lines of a text that nobody else holds: the string and the array live as long as they."""
    lines = Text.from_bytes("\n".join(f"line {number} é" for number in range(10_000)).encode()).lines
    for number in range(0, 10_000, 101):
        assert lines[number] == f"line {number} é"
    gc.collect()
    assert [lines[number] for number in range(9_000, 10_000)] == [f"line {number} é" for number in range(9_000, 10_000)]


def _ends_well(code: str) -> bool:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    print(ended.stderr)
    return ended.returncode == 0
