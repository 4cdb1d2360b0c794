"""An extract as bytes is the extract, and the words of a text are those that `git grep` finds."""

import random
import string
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_lock.extraction.packing import definitions_in, from_bytes, to_bytes
from rlm_lock.extraction.parse import extract
from rlm_lock.extraction.words import COUNT, HEAD, hash_of, pack, parts_of, unpack, words_in, words_of
from rlm_lock.model import Definition, Extract

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp", "Cs"]), min_size=1, max_size=9)
KINDS = st.sampled_from("class constant enum function interface macro method module property struct trait type".split())
HASHES = st.dictionaries(st.integers(0, 2**32 - 1), st.integers(0, 15), max_size=60).map(lambda d: sorted(d.items()))


@st.composite
def extracts(draw: st.DrawFn) -> Extract:
    """Any extract that may be: its definitions are in the order of lines."""
    lines = sorted(draw(st.lists(st.integers(1, 10**6), max_size=8)))
    return Extract(
        definitions=tuple(Definition(draw(NAMES), draw(KINDS), line) for line in lines),
        imports=tuple(draw(st.lists(NAMES, max_size=5))),
        words=pack(draw(HASHES)),
        note=draw(st.sampled_from(["", "deep", "long lines"])),
    )


@given(extracts())
def test_an_extract_survives_being_packed(found: Extract) -> None:
    """The store keeps the bytes only."""
    packed = to_bytes(found)
    assert from_bytes(packed) == found
    assert definitions_in(packed) == found.definitions


@given(HASHES)
def test_packed_words_are_the_words(words: list[tuple[int, int]]) -> None:
    """The index is made of them."""
    hashes, infos = unpack(pack(words))
    assert list(zip(hashes, infos, strict=True)) == words


@given(st.binary(max_size=2_000), st.sampled_from(["x.py", "x.ts", "x.c", "x.rs", "x.rb", "x.sh", "x.txt", "x"]))
def test_any_bytes_have_an_extract_and_the_same_each_time(data: bytes, path: str) -> None:
    """An extract is kept by content: it must depend on nothing else, and no content may break it."""
    found = extract(path, data)
    assert found == extract(path, data)
    assert from_bytes(to_bytes(found)) == found


def test_words_are_counted_as_a_search_for_whole_words_counts_them() -> None:
    """`git grep -i -w` and the map have to agree on what a word is."""
    hashes, infos = unpack(words_of(b"x-ray HttpServer http_server httpserver 0x1fabc caf\xc3\xa9 " + b"again " * 5))
    counts = dict(zip(hashes, (info & COUNT for info in infos), strict=True))
    assert counts[hash_of("httpserver")] == 2
    assert counts[hash_of("HTTP_SERVER")] == 1
    assert counts[hash_of("caf\xe9")] == 1
    assert counts[hash_of("again")] == 4
    assert counts[hash_of("http")] == 0
    assert hash_of("x1fabc") not in counts


def test_the_first_lines_are_marked_and_a_licence_is_not_one_of_them() -> None:
    """A licence stands above every file of many projects, and says nothing of any."""
    text = b"# Copyright somebody\n# Licence: many terms\n#\n\n# Parses calendars.\n\n" + b"x = 1\n" * 900 + b"late\n"
    hashes, infos = unpack(words_of(text))
    head = {key for key, info in zip(hashes, infos, strict=True) if info & HEAD}
    assert hash_of("calendars") in head
    assert hash_of("terms") not in head
    assert hash_of("late") not in head
    assert hash_of("late") in hashes


def test_what_a_file_defines_is_no_mention_of_it() -> None:
    """Otherwise each file would mention its own definitions."""
    found = extract("x.py", b"def Compute(): pass\ncompute = 1\nother = compute\n")
    assert hash_of("compute") not in unpack(found.words)[0]
    assert hash_of("other") not in unpack(found.words)[0]
    assert hash_of("def") in unpack(found.words)[0]


def test_names_come_apart_as_people_read_them() -> None:
    """A question says `http header` where the code says `parseHTTPHeader`."""
    assert parts_of("parseHTTPHeader_fast v2 x") == ["parse", "http", "header", "fast"]
    assert words_in("Where is `Foo.bar_baz` of caf\xe9?") == ["where", "foo", "bar_baz", "caf\xe9"]


@pytest.mark.parametrize(
    ("path", "data", "note"),
    [
        ("x.py", b"def f(): pass\n\0", "binary"),
        ("x.py", b"word\n" * 250_000, "large"),
        ("x.js", b"let a = 1;" * 4_000, "long lines"),
        ("x.py", b"word" + (b"[" * 50 + b"\n") * 41, "deep"),
        ("x.py", b"word" + (b"[]" * 50 + b"\n") * 41, ""),
        ("x.txt", b"word" + b"[" * 5_000, ""),
    ],
)
def test_what_would_hold_a_parser_is_not_parsed_and_says_why(path: str, data: bytes, note: str) -> None:
    """A hundred thousand brackets hold a parser for ever; what is lost is told (L-11)."""
    found = extract(path, data)
    assert found.note == note
    assert not found.definitions
    assert bool(found.words) is (note != "binary")


def test_an_extract_of_a_source_of_ten_kilobytes_takes_one() -> None:
    """A store of 75,000 files has to stay small: two kilobytes a file, with everything."""
    chance = random.Random(1)
    names = ["".join(chance.choices(string.ascii_lowercase, k=9)) for _ in range(250)]
    source = "".join(f"def {name}(a):\n    return {chance.choice(names)}(a)\n" for name in names[:60])
    source += "".join(f"{chance.choice(names)} = {chance.choice(names)}\n" for _ in range(200))
    packed = to_bytes(extract("x.py", source.encode()))
    assert len(packed) < 1_900
    assert len(packed) < len(zlib.compress(source.encode()))
