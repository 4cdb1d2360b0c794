"""Lines in large pages are strings like any other: the same, freed as any, whatever happens meanwhile."""

import gc
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_kernel.contexts import arenas
from rlm_kernel.contexts.arenas import ARENA, Feed
from rlm_kernel.contexts.text import Text

LARGE = 1 << 21
PIECE = "\n".join(f"{number} {'x' * (number % 300)}" for number in range(600))
PLAIN = [f"{number} {'x' * (number % 190)}" for number in range(60_000)]
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture
def fed() -> Feed:
    """The feed of this process, with arenas to spare."""
    found = arenas.feed()
    assert found is not None
    assert found.split(PIECE) == PIECE.split("\n")
    return found


def test_every_supported_interpreter_has_it() -> None:
    """A version whose parts are not where they were expected to be shows up here, not in figures."""
    assert arenas.feed() is not None


@settings(max_examples=25)
@given(st.data())
def test_lines_from_large_pages_are_those_of_plain_python(data: st.DataObject) -> None:
    """K-16: lists of them live and die in any order, among other objects, and all keep what they say."""
    context = Text.from_bytes("\n".join(PLAIN).encode())
    rng = random.Random(data.draw(st.integers(0, 1 << 30)))
    kept: list[tuple[list[str], list[str]]] = []
    for step in data.draw(st.lists(st.sampled_from(["list", "index", "thin", "drop", "other"]), max_size=12)):
        if step == "list":
            kept.append((list(context.lines), PLAIN))
        elif step == "index":
            lines = context.lines
            kept.append(([lines[at] for at in range(len(lines))], PLAIN))
        elif step == "other":
            numbers = [str(number) * 3 for number in range(1000)]
            kept.append((numbers, list(numbers)))
        elif kept and step == "thin":
            found, plain = kept.pop(rng.randrange(len(kept)))
            part = slice(rng.randrange(9), None, rng.randrange(2, 50))
            kept.append((found[part], plain[part]))
        elif kept:
            del kept[rng.randrange(len(kept))]
        assert all(found == plain for found, plain in kept)


def test_the_system_gives_large_pages(fed: Feed) -> None:
    """The purpose of it: strings lie in memory that the system has cleared in large pages."""
    if not ENABLED.exists() or "[never]" in ENABLED.read_text():
        pytest.skip("this system gives no large pages")
    many = [fed.split(PIECE) for _ in range(300)]
    assert sum(map(len, many)) == 300 * 600
    assert any(_is_advised(id(line)) for lines in many for line in lines[::100])


def _is_advised(address: int) -> bool:
    """Whether large pages were asked for where an object is (`hg` among the flags of its map)."""
    inside = False
    for row in Path("/proc/self/smaps").read_text().splitlines():
        if bounds := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", row):
            low, high = (int(bound, 16) for bound in bounds.groups())
            inside = low <= address < high
        elif inside and row.startswith("VmFlags:"):
            return " hg" in row
    return False


def test_arenas_begin_where_large_pages_do(fed: Feed) -> None:
    """An arena that lies across two of them would be half of each."""
    fed.spare.clear()
    for _ in range(4):  # one of them at least is offered arenas, whatever came before
        fed.split(PIECE)
    assert all(address % ARENA == 0 for address in fed.spare)
    assert any(address % LARGE == 0 for address in fed.spare)


def test_memory_goes_back_when_the_lines_go() -> None:
    """CPython returns such arenas as it returns its own; what stays is what is spare."""
    code = """
from rlm_kernel.contexts import arenas
piece = "\\n".join(f"{number} {'x' * (number % 300)}" for number in range(600))
def advised():
    rows = open("/proc/self/smaps").read().splitlines()
    sizes = [int(row.split()[1]) for row in rows if row.startswith("Size:")]
    flags = [row for row in rows if row.startswith("VmFlags:")]
    return sum(size for size, each in zip(sizes, flags, strict=True) if " hg" in each) << 10
many = [arenas.split(piece) for _ in range(600)]
assert advised() > 60 << 20
del many
assert advised() < 30 << 20
"""
    assert _ends_well(code)


def test_lines_that_need_more_arenas_than_there_are_come_from_elsewhere(fed: Feed) -> None:
    """CPython asks malloc then; later calls get arenas again."""
    huge = "\n".join(str(number) * 40 for number in range(100_000))
    assert fed.split(huge) == huge.split("\n")
    many = [fed.split(PIECE) for _ in range(100)]
    assert all(lines == PIECE.split("\n") for lines in many)


def test_no_arena_is_given_twice(fed: Feed) -> None:
    """What CPython may have is not spare any more, and what is spare nobody has."""
    many = []
    for _ in range(400):
        many.append(fed.split(PIECE))
        taken = {id(line) // ARENA for line in many[-1]}
        assert not taken & {address // ARENA for address in fed.spare}
        assert len(set(fed.spare)) == len(fed.spare)
    assert all(lines == PIECE.split("\n") for lines in many)


def test_the_collector_finds_nothing_of_it(fed: Feed) -> None:
    """It runs within `split` when that makes its list: the addresses are no objects, and it must not look at them."""
    old = gc.get_threshold()
    gc.set_threshold(1)
    try:
        many = [fed.split(PIECE) for _ in range(100)]
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert all(lines == PIECE.split("\n") for lines in many)


def test_a_copy_of_the_process_has_its_own(fed: Feed) -> None:
    """Sessions are copies: each goes on from the same state, in memory of its own."""
    many = [fed.split(PIECE) for _ in range(20)]
    child = os.fork()
    if not child:
        try:
            more = [fed.split(PIECE[:-1]) for _ in range(100)]
            same = all(lines == PIECE[:-1].split("\n") for lines in more) and many[-1] == PIECE.split("\n")
            os._exit(0 if same else 1)
        finally:
            os._exit(2)
    more = [fed.split(PIECE) for _ in range(100)]
    assert os.waitpid(child, 0)[1] == 0
    assert all(lines == PIECE.split("\n") for lines in many + more)


def test_without_memory_to_spare_lines_are_made_as_always() -> None:
    """The feed asks for 8 MiB at a time; when a limit refuses that, nobody notices."""
    code = """
import resource
from rlm_kernel.contexts import arenas
piece = "\\n".join(str(number) for number in range(9000))
assert arenas.split(piece) == piece.split("\\n")
arenas.feed().spare.clear()
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used + (4 << 20), used + (4 << 20)))
assert arenas.split(piece) == piece.split("\\n")
assert not arenas.feed().spare
"""
    assert _ends_well(code)


def test_a_process_ends_well_with_lines_in_large_pages() -> None:
    """Also when they are the last thing that it lets go."""
    assert _ends_well(
        """
import sys
from rlm_kernel.contexts import arenas
piece = "\\n".join(str(number) * 9 for number in range(9000))
sys.kept = [arenas.split(piece) for _ in range(50)]
"""
    )


def _ends_well(code: str) -> bool:
    return subprocess.run([sys.executable, "-X", "dev", "-W", "ignore", "-c", code], check=False).returncode == 0


def test_a_system_without_large_pages_serves_as_well() -> None:
    """The advice is then without effect."""
    code = """
import ctypes
assert ctypes.CDLL(None).prctl(41, 1, 0, 0, 0) == 0  # PR_SET_THP_DISABLE
from rlm_kernel.contexts import arenas
piece = "\\n".join(str(number) * 9 for number in range(9000))
assert all(arenas.split(piece) == piece.split("\\n") for _ in range(50))
"""
    assert _ends_well(code)


def test_an_unknown_interpreter_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then there is no feed, and no risk."""
    monkeypatch.setattr(arenas, "_VERSIONS", ())
    with pytest.raises(RuntimeError, match="is known"):
        Feed()
