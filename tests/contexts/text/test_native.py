"""The inner loops over lines, in C: what they answer, whoever calls them and with whatever."""

import gc
import subprocess
import sys
import tracemalloc
from array import array

import line_loops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_contexts.text import _native
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.text import Text

PIECE = "\n".join(f"{number} {'x' * (number % 300)}" for number in range(600)) + "\n"
SCATTERED = [number * 7919 % 20_000 for number in range(200)]
TEXTS = st.text(st.sampled_from("ab\n\n\r\0é€\U0001f600")) | st.text("ab\r\n")


@settings(max_examples=500)
@given(TEXTS, st.sampled_from(["", "a", "ab", "é", "a\r"]), st.integers(1, 9), st.integers(0, 1 << 33))
def test_they_answer_what_plain_python_does(text: str, wanted: str, block: int, first: int) -> None:
    """K-16: any text, with any line ends, cut into blocks of any size."""
    view, line = memoryview(text.encode()), wanted.encode()
    crlf = "\r" in text
    assert _native.split(view, crlf) == line_loops.split(view, crlf)
    assert _native.equal_lines(view, line, crlf) == line_loops.equal_lines(view, line, crlf)
    assert _native.ranks(view, block, first) == line_loops.ranks(view, block, first)
    for code in "IQ":
        found = []
        for loops in (_native, line_loops):
            starts = array(code, bytes(array(code).itemsize * (text.count("\n") + 2)))
            answer = loops.line_starts(view, starts, 1, first if code == "Q" else 7, text.isascii())
            found.append((answer, starts))
        assert found[0] == found[1]


@pytest.mark.parametrize("scattered", [False, True])
def test_a_narrow_number_of_numpy_finds_its_line(scattered: bool) -> None:
    """It would wrap around when one is added to it."""
    plain = [f"line {number} {'x' * 99}" for number in range(20_000)]
    lines = Lines(Text.from_bytes("\n".join(plain).encode()))
    if scattered:
        assert all(lines[number] == plain[number] for number in SCATTERED)
    for key in (np.int8(127), np.int8(-100), np.uint8(255), np.int16(-20_000), np.uint64(19_999)):
        assert lines[10_300] == plain[10_300]
        assert lines[key] == plain[key]


def test_whatever_they_are_told_the_process_lives() -> None:
    """Code in a session can call them; it gets errors, nothing else."""
    assert _ends_well(
        """
import sys
from array import array
from rlm_contexts.text import _native
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.text import Text

def tried(call, *arguments):
    try:
        return call(*arguments)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError, BufferError, UnicodeDecodeError) as error:
        return error

for arguments in ((), (b"",), ("text", False), (b"\\xff", False), (memoryview(b"abcd")[::2], 0)):
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
assert odd.tolist() == [0, 2, 4]
"""
    )


def test_a_text_that_changes_meanwhile_makes_no_broken_strings() -> None:
    """A thread that reads a file into a buffer holds no lock; a false ASCII string has CPython read beyond tables."""
    code = r"""
import os, random, threading
from rlm_contexts.text import _native
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
        lines = _native.split(text, False)
    except UnicodeDecodeError:
        continue
    assert all(max(line.encode()) < 0x80 for line in lines[-700:])
os._exit(0)
"""
    assert _ends_well(code)


def test_nothing_leaks() -> None:
    """Neither what is answered nor what is refused stays."""
    view = memoryview(PIECE.encode())

    def all_of_it() -> None:
        _native.split(view, True)
        _native.equal_lines(view, b"1 x", False)
        _native.ranks(view, 100, 0)
        starts = array("I", bytes(4 * 601))
        _native.line_starts(view, starts, 1, 0, True)
        with pytest.raises(UnicodeDecodeError):
            _native.split(b"good\n\xff", False)

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


def test_the_collector_may_run_code_meanwhile() -> None:
    """A finaliser that makes lines itself, in the middle of others, which an error interrupts."""
    made = []

    class Last:
        def __del__(self) -> None:
            made.append(_native.split(PIECE.encode(), False))

    old = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(50):
            loop: list[object] = [Last()]
            loop.append(loop)
            del loop
            assert _native.split(PIECE.encode(), False) == PIECE.split("\n")[:-1]
            with pytest.raises(UnicodeDecodeError):
                _native.split(b"good\n\xff", False)
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert len(made) == 50
    assert all(lines == PIECE.split("\n")[:-1] for lines in made)


def test_lines_hold_on_to_what_they_are_cut_from() -> None:
    """Scattered lines of a text that nobody else holds: the string and the array live as long as they."""
    plain = [f"line {number} {'é' * 99}" for number in range(20_000)]
    lines = Lines(Text.from_bytes("\n".join(plain).encode()))
    assert all(lines[number] == plain[number] for number in SCATTERED)
    gc.collect()
    assert [lines[number] for number in range(9_000, 10_000)] == plain[9_000:10_000]


def _ends_well(code: str) -> bool:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    print(ended.stderr)
    return ended.returncode == 0
