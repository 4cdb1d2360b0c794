"""A map names what matters first, within its tokens, and nothing in a project can forge a line of it."""

import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed_project import Project

from rlm_lock.extraction.words import hash_of
from rlm_lock.map.question import asks_for_tests, terms_of
from rlm_lock.map.scores import is_test, stem_of
from rlm_lock.map.text import FIRST, Line, estimated, text_of

FILES = {
    "shop/cart.py": "from shop.price import total_of\nclass Cart:\n    def add_item(self): return total_of(self)\n",
    "shop/price.py": '"""Prices with their currency."""\ndef total_of(cart): return 1\nRATE = 2\n',
    "shop/mail.py": "def send_receipt(): pass\n",
    "shop/__init__.py": "",
    "web/views.py": "from shop.cart import Cart\nfrom shop import mail\ndef checkout(): Cart().add_item()\n",
    "tests/test_cart.py": "from shop.cart import Cart\ndef test_add(): Cart().add_item()\n",
    "jobs/nightly.rb": "def nightly; filler_5; end\n",
    "docs/guide.md": "# A guide to refunds\nHow refunds reach the customer.\n",
    **{f"other/filler{n:02}.py": f"def filler_{n}(): return {n}\n" for n in range(30)},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A small shop."""
    return Project(tmp_path_factory.mktemp("map"), FILES)


@pytest.mark.parametrize(
    ("focus", "about", "expected"),
    [
        ([], "Where is total_of defined?", ["shop/price.py"]),
        ([], "how do refunds reach customers", ["docs/guide.md"]),
        ([], "currency", ["shop/price.py"]),
        (["shop/cart.py"], "", ["shop/price.py", "web/views.py", "tests/test_cart.py"]),
        (["shop/cart.py"], "Which test covers this file?", ["tests/test_cart.py"]),
        (["tests/test_cart.py"], "", ["shop/cart.py"]),
        (["web/views.py"], "What does it build on?", ["shop/cart.py", "shop/mail.py", "shop/__init__.py"]),
        (["shop/price.py"], "Who uses total_of?", ["shop/cart.py"]),
        (["other/filler05.py"], "", ["jobs/nightly.rb"]),
        ([], "checkout", ["web/views.py"]),
    ],
)
def test_what_is_wanted_comes_first(project: Project, focus: list[str], about: str, expected: list[str]) -> None:
    """The first lines are what an agent reads (L-4)."""
    lines = project.map.show(1_000, focus=focus, about=about).text.splitlines()
    assert {line.split(": ")[0].rstrip(":") for line in lines[: len(expected)]} == set(expected)


def test_a_symbol_is_shown_with_its_line(project: Project) -> None:
    """An agent opens the file at the right place."""
    assert project.map.show(1_000, about="add item").text.startswith("shop/cart.py: add_item:3 Cart:2\n")


def test_a_cold_start_shows_what_most_files_import(project: Project) -> None:
    """Nobody has asked anything yet."""
    assert project.map.show(1_000).text.startswith("shop/cart.py:")


def test_paths_that_the_project_does_not_have_are_told(project: Project) -> None:
    """A typing error must not look like a file without neighbours."""
    assert project.map.show(500, focus=["shop/crat.py", "shop/cart.py"]).unknown == ("shop/crat.py",)


def test_a_map_may_be_narrowed_to_a_folder(project: Project) -> None:
    """In a repository of many packages somebody works on one."""
    shown = project.map.show(1_000, about="total_of cart", path="shop/")
    assert shown.files == 4
    assert "web/" not in shown.text


def test_the_same_tree_has_the_same_map_whatever_order_its_files_came_in(tmp_path: Path) -> None:
    """Two clones, two machines: one text (L-2)."""
    texts = set()
    for folder, files in (("a", FILES), ("b", dict(reversed(FILES.items())))):
        made = Project(tmp_path / folder, files)
        texts.add(made.map.show(800, focus=["shop/cart.py"], about="send a receipt").text)
        texts.add("".join(made.map.whole(100_000)))
    assert len(texts) == 2


def test_the_whole_map_names_every_file_also_when_there_is_no_room_for_symbols(project: Project) -> None:
    """It is a context: scan and query find a file in it whatever its size."""
    rich, bare = "".join(project.map.whole(100_000)), "".join(project.map.whole(10))
    for path in FILES:
        assert f" {path.rpartition('/')[2]}" in bare
    assert "total_of:2" in rich
    assert "total_of" not in bare


def test_the_whole_map_of_an_empty_project_is_empty(tmp_path: Path) -> None:
    """Every project has been one."""
    assert "".join(Project(tmp_path, {}).map.whole(1000)) == ""


@pytest.mark.parametrize(
    "path",
    [
        *["test_cart.py", "shop/cart_test.go", "cart_tests.rb", "cart_spec.rb", "Test_Cart.py"],
        *["web/cart.test.ts", "web/cart.spec.js", "CartTest.java", "CartTests.cs", "CartSpec.scala"],
        *["tests/cart.py", "shop/test/cart.c", "spec/cart.rb", "specs/cart.rb", "web/__tests__/cart.js"],
    ],
)
def test_a_test_is_known_by_its_name_or_its_folder(path: str) -> None:
    """So a module and its test find each other, in the habits of many languages."""
    assert stem_of(path) == "cart"
    assert is_test(path)


@pytest.mark.parametrize("path", ["shop/cart.py", "contest.py", "latest/cart.py", "cart", "spec_cart.rs", ".spec"])
def test_other_names_are_no_tests(path: str) -> None:
    """Also when they only contain the word."""
    assert not is_test(path)


HOSTILE = [
    "a\nshop/forged.py",
    "b\u202egpj.py",
    "c\u2028d.py",
    "e\x1b[2Jf.py",
    "g\udcff.py",
    " h: forged.py",
]


def test_a_name_cannot_forge_a_line_or_hide_one(tmp_path: Path) -> None:
    """A repository is written by others; a file's name is text of theirs in our answer (L-11)."""
    made = Project(tmp_path, dict.fromkeys(HOSTILE, "def needle(): pass\n"))
    for text in (made.map.show(2_000, about="needle").text, "".join(made.map.whole(10_000))):
        lines = text.split("\n")
        assert not any(line.startswith("shop/forged.py") for line in lines)
        assert sum("needle" in line for line in lines) == len(HOSTILE)
        assert all(c.isprintable() for c in text if c != "\n")
        text.encode()


COUNTED = [
    # What cl100k_base counts in lines of maps, of ordinary and of odd names.
    (
        "db/models/fields/related_descriptors.py: ForeignKeyDeferredAttribute:85 ReverseOneToOneDescriptor:428\n",
        24,
    ),
    ("src/renderers/webgl/WebGLProgram.js: WebGLProgram:404 getUniforms:1 fetchAttributeLocations:2\n", 26),
    ("net/http/transfer.go: transferWriter:54 noResponseBodyExpected:418 bodyAllowedForStatus:453\n", 20),
    (" test_array.py: TestSaveLoad TestQuerying\n", 10),
]


@pytest.mark.parametrize(("line", "tokens"), COUNTED)
def test_the_estimate_is_not_below_what_a_tokenizer_counts(line: str, tokens: int) -> None:
    """A map that takes more than it was given pushes something else out of a context."""
    assert tokens <= estimated(line) <= 2 * tokens


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(string.printable + "\u202e\u6f22\U0001f600", min_size=1, max_size=60),
            st.lists(
                st.tuples(st.text(string.ascii_letters + "_\xe9", min_size=1, max_size=40), st.integers(1, 10**6))
            ),
        ),
        max_size=60,
    ),
    st.integers(1, 2_000),
)
def test_a_map_never_takes_more_than_it_was_given(rows: list[tuple[str, list[tuple[str, int]]]], tokens: int) -> None:
    """Whatever the names are, and however many (L-4)."""
    lines = [Line("a/b", base, tuple(symbols)) for base, symbols in rows]
    text, files = text_of(lines, tokens)
    assert estimated(text) <= tokens
    assert files <= len(rows)
    assert text.count("\n") <= files + 1


def test_the_first_ten_are_in_order_and_the_others_by_folder() -> None:
    """Whole paths keep the order, folders save tokens: that was measured."""
    lines = [Line(f"f{n % 3}", f"x{n}.py", ()) for n in range(FIRST + 6)]
    text, files = text_of(lines, 1_000)
    shown = text.splitlines()
    assert files == FIRST + 6
    assert shown[:FIRST] == [f"f{n % 3}/x{n}.py:" for n in range(FIRST)]
    assert shown[FIRST:] == ["f1/", " x10.py", " x13.py", "f2/", " x11.py", " x14.py", "f0/", " x12.py", " x15.py"]


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        *[
            ("retries", ["retry"]),
            ("running", ["run", "runn", "runne", "runns"]),
            ("passed", ["pass", "passe", "passs"]),
        ],
        *[("caches", ["cache", "cach"]), ("totals", ["total"]), ("class", ["classs", "classed", "classing"])],
        *[
            ("cache", ["caches", "cached", "caching"]),
            ("filed", ["fil", "file", "fils"]),
            ("bed", []),
            ("seed", ["seeds", "seeded", "seeding"]),
            ("x25s", []),
        ],
    ],
)
def test_a_word_is_sought_in_the_other_forms_that_english_has(word: str, forms: list[str]) -> None:
    """A form that there is not costs nothing: no file has it."""
    assert [sought.term for sought in terms_of(word)] == [hash_of(form) for form in (word, *forms)]


def test_words_that_only_hold_a_sentence_together_are_not_sought() -> None:
    """`Change this file: which files does it build on?` has nothing to look for; names are worth more than words."""
    assert terms_of("Change this file: which files does it build on?") == []
    by_weight = sorted(terms_of("parse_header of the request"), key=lambda sought: -sought.weight)
    assert len({sought.word for sought in by_weight}) == 2
    assert by_weight[0].weight > by_weight[1].weight
    assert asks_for_tests("Which tests cover this?")
    assert not asks_for_tests("the latest contest")
