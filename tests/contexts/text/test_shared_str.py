"""A string over foreign memory is a string in every respect."""

import ast
import builtins
import copy
import ctypes
import gc
import json
import mmap
import pickle
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_contexts.store.store import ContextStore
from rlm_contexts.text import shared_str
from rlm_contexts.text.mapping import Mapping
from rlm_contexts.view.variable import ContextVariable

ALPHABETS: dict[shared_str.Encoding, st.SearchStrategy[str]] = {
    "ascii": st.text(st.characters(codec="ascii"), min_size=2, max_size=60),
    "latin-1": st.text(st.characters(codec="latin-1"), min_size=2, max_size=60).map(lambda text: text + "\xe9"),
    "ucs2": st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF), min_size=2, max_size=60).map(
        lambda text: text + "\u0416"
    ),
    "ucs4": st.text(st.characters(codec="utf-8"), min_size=2, max_size=60).map(lambda text: text + "\U0001f600"),
}
BUILTINS = ["len", "hash", "repr", "str", "list", "set", "sorted", "ascii", "bool", "type", "min", "max"]
METHODS = [
    "upper",
    "lower",
    "title",
    "casefold",
    "swapcase",
    "strip",
    "split",
    "splitlines",
    "encode",
    "expandtabs",
]
TESTS = ["isascii", "isalpha", "isprintable", "isidentifier", "isspace", "isdecimal", "isupper"]
IDIOMS: list[Callable[[str], Any]] = [
    lambda s: (s[::-1], s[1:-1], s[0] + s[-1], s * 3, s + "x", "x" + s),
    lambda s: (f"{s:>80}", f"{s!r}", "%s" % s, "{}".format(s)),  # noqa: UP031, UP032
    lambda s: (s.replace("a", "b\u20ac"), s.translate({97: "zz"}), s.center(90, "*"), s.zfill(90)),
    lambda s: (s.partition("a"), s.rsplit("\n", 1), "-".join(s), s.join(["1", "2"]), s.removeprefix(s[:2])),
    lambda s: (s.find(s[len(s) // 2 :]), s.count(s[0]), s[1] in s, s.startswith(s[:2]), s < "m", s > "m"),
    lambda s: (re.findall(r"\w+", s), re.sub(r"\s", "_", s), re.split("a", s)),
    lambda s: (s.encode("utf-16"), s.encode("latin-1", "replace"), {s: 1}[s], {s, s + ""}),
    lambda s: (json.dumps(s), pickle.dumps(s), re.escape(s)),
    lambda s: (json.loads(json.dumps({s: s})), copy.deepcopy([s]), ast.literal_eval(repr(s))),
]


def shared(text: str, encoding: shared_str.Encoding) -> str:
    """The text over a buffer of its own."""
    units = ctypes.create_string_buffer(shared_str.encode_for(encoding, text) + bytes(4))
    utf8 = ctypes.create_string_buffer(text.encode() + b"\0")
    where = (ctypes.addressof(utf8), len(text.encode()))
    return shared_str.make(ctypes.addressof(units), len(text), encoding, where, units, utf8)


def test_this_interpreter_can_share_strings() -> None:
    """On every Python the project supports the self-test passes."""
    assert shared_str.why_not() is None


@pytest.mark.parametrize("encoding", ALPHABETS)
@given(data=st.data())
def test_every_idiom_gives_what_it_gives_for_an_ordinary_string(
    encoding: shared_str.Encoding, data: st.DataObject
) -> None:
    """K-16: content is a real str, in all four layouts."""
    plain = data.draw(ALPHABETS[encoding])
    text = shared(plain, encoding)
    assert type(text) is str
    assert text == plain
    for name in BUILTINS:
        assert getattr(builtins, name)(text) == getattr(builtins, name)(plain)
    for name in METHODS + TESTS:
        assert getattr(text, name)() == getattr(plain, name)()
    for idiom in IDIOMS:
        assert idiom(text) == idiom(plain)


@pytest.mark.parametrize("encoding", ALPHABETS)
def test_c_code_reads_the_same_utf8(encoding: shared_str.Encoding) -> None:
    """The UTF-8 form is the one given, with its terminating NUL, not a new copy."""
    plain = {"ascii": "plain", "latin-1": "caf\xe9", "ucs2": "\u0416uk", "ucs4": "smile \U0001f600"}[encoding]
    text = shared(plain, encoding)
    function = ctypes.pythonapi.PyUnicode_AsUTF8
    function.restype, function.argtypes = ctypes.c_char_p, [ctypes.py_object]
    assert function(text) == plain.encode()


def test_adding_to_a_shared_string_leaves_it_alone() -> None:
    """CPython grows strings in place when nobody else has them; this one it must not."""
    text = shared("immutable", "ascii")
    address = id(text)
    text += " and more"
    assert text == "immutable and more"
    assert id(text) != address


def forget_others() -> None:
    """Release the strings of the self-test, and those that other tests have left to the garbage collector."""
    assert shared_str.available()
    gc.collect()
    shared_str.release_unused()


def test_memory_is_given_back_when_nobody_refers_to_the_string() -> None:
    """K-6: not before, and not while any object still holds it."""
    forget_others()
    text: str | None = shared("short lived", "ascii")
    keeper = {"held": [text]}
    text = None
    assert shared_str.release_unused() == 0
    assert keeper["held"] == ["short lived"]
    keeper.clear()
    gc.collect()
    assert shared_str.release_unused() == 1


def test_an_interned_string_is_never_given_back() -> None:
    """The table of interned strings refers to it without counting."""
    forget_others()
    name = f"interned_by_{len('this test')}"  # not a constant: those are interned already
    text: str | None = shared(name, "ascii")
    assert sys.intern(text) is text  # type: ignore[arg-type]
    text = None
    gc.collect()
    assert shared_str.release_unused() == 0
    assert sys.intern(name) == name


def test_without_a_known_layout_the_content_is_an_ordinary_string(
    store: ContextStore, attach_text: Callable[..., ContextVariable], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any doubt means a private copy: same value, nothing shared."""
    monkeypatch.setattr(shared_str, "_LAYOUTS", {})
    shared_str.why_not.cache_clear()
    try:
        assert "not known" in str(shared_str.why_not())
        with pytest.raises(shared_str.UnavailableError):
            shared_str.make(0, 10, "ascii", (0, 10))
        for text in ("plain\n" * 20_000, "\U0001f600\n" * 20_000):
            assert attach_text(store, text)["content"] == text
    finally:
        shared_str.why_not.cache_clear()


def test_a_wrong_layout_is_noticed_by_the_self_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fields swapped: no string is ever made with it."""
    words = list(shared_str._LAYOUTS[sys.version_info[:2]])
    words[2], words[3] = words[3], words[2]
    monkeypatch.setattr(shared_str, "_LAYOUTS", {sys.version_info[:2]: tuple(words)})
    shared_str.why_not.cache_clear()
    shared_str._template.cache_clear()
    try:
        assert "not where it was expected" in str(shared_str.why_not())
    finally:
        monkeypatch.undo()
        shared_str.why_not.cache_clear()
        shared_str._template.cache_clear()
        assert shared_str.available()


LARGE_PAGE = 1 << 21


@pytest.mark.parametrize("size", [0, 1, 4096, LARGE_PAGE - 1, LARGE_PAGE, LARGE_PAGE + 1, 3 * LARGE_PAGE - 4096])
def test_a_map_holds_the_file_and_a_zero_after_it(size: int, tmp_path: Path) -> None:
    """A large file begins where the system can use large pages for it."""
    data = bytes(range(1, 251)) * (size // 250 + 1)
    (tmp_path / "data").write_bytes(data[:size])
    with (tmp_path / "data").open("rb") as file:
        mapping = Mapping(file.fileno(), size)
    assert mapping.view() == data[:size]
    assert ctypes.string_at(mapping.address + size, 1) == b"\0"
    assert size < LARGE_PAGE or mapping.address % LARGE_PAGE == 0


def test_maps_take_no_more_address_space_than_their_files_and_give_it_back(tmp_path: Path) -> None:
    """What is reserved to find a good place for a large file is returned at once, the rest with the map."""

    def address_space() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE

    size, many = 2 * LARGE_PAGE + 1, 40
    (tmp_path / "data").write_bytes(b"x" * size)
    before = address_space()
    with (tmp_path / "data").open("rb") as file:
        held = [Mapping(file.fileno(), size) for _ in range(many)]
    assert abs(address_space() - before - many * size) < many * LARGE_PAGE // 2
    held.clear()
    assert address_space() - before < many * LARGE_PAGE // 2
