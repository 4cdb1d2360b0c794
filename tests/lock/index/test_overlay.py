"""What changed since the base was built is answered as if the base had been built anew."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from indexed_project import Project

from rlm_lock.extraction.words import hash_of
from rlm_lock.index.base import INDEX_FILE, Base, build
from rlm_lock.index.postings import SEGMENT_FILES, Field
from rlm_lock.index.project import ProjectIndex

NAMES = ("alpha", "beta", "gamma", "delta")
PATHS = [f"{folder}{name}.py" for folder in ("", "pkg/", "pkg/sub/", "other/") for name in NAMES]
LINES = st.one_of(
    st.sampled_from(NAMES).map("import {}".format),
    st.tuples(st.sampled_from(["pkg", "pkg.sub", ".", "..", "other"]), st.sampled_from(NAMES)).map(
        lambda pair: f"from {pair[0]} import {pair[1]}"
    ),
    st.sampled_from(NAMES).map("def make_{}(): pass".format),
    st.sampled_from(NAMES).map("value = make_{}()".format),
    st.sampled_from(["# common words of a text", "common = 1", "rare = 2"]),
)
TEXTS = st.lists(LINES, max_size=6).map("\n".join)
STEPS = st.lists(st.tuples(st.sampled_from(PATHS), st.one_of(st.none(), TEXTS)), max_size=12)
WORDS = (*NAMES, *(f"make_{name}" for name in NAMES), "make", "common", "rare", "import", "pkg", "nowhere")


def _answers(project: Project, index: ProjectIndex) -> dict[str, object]:
    """Return everything that an index answers, without the numbers of files."""
    paths = sorted(index.path_of(n) for n in index.numbers())
    number = {path: index.number_of(path) for path in paths}

    def named(numbers: list[int]) -> list[bytes]:
        return sorted(index.path_of(n) for n in numbers)

    return {
        "count": len(index),
        "paths": paths,
        "imports": {path: named(index.imports_of(n)) for path, n in number.items() if n is not None},
        "importers": {path: named(index.importers_of(n)) for path, n in number.items() if n is not None},
        "degrees": {path: index.in_degree(n) for path, n in number.items() if n is not None},
        "sizes": {path: index.size_of(n) for path, n in number.items() if n is not None},
        "words": {
            (word, field): sorted((index.path_of(n), info) for n, info in index.hits(hash_of(word)).rows(field))
            for word in WORDS
            for field in Field
        },
        "definers": {word: named(index.named(hash_of(word))) for word in WORDS},
        "below": sorted(index.path_of(n) for n in index.numbers(b"pkg")),
    }


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(PATHS), TEXTS, max_size=8), STEPS)
def test_an_index_that_was_changed_answers_as_one_that_was_built_anew(
    files: dict[str, str], steps: list[tuple[str, str | None]]
) -> None:
    """A file that was edited has the right neighbours at once; the base is built anew much later (L-5)."""
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), files)
        for path, text in steps:
            if text is None:
                project.delete(path)
            else:
                project.write(path, text)
        changed = _answers(project, project.index)
        project.index = project.built()
        assert changed == _answers(project, project.index)


def _no_imports(path: bytes) -> tuple[str, ...]:
    return ()


def test_a_file_is_looked_at_again_only_if_its_content_is_another(tmp_path: Path) -> None:
    """A scanner that starts again compares the files that it finds with those that are indexed."""
    build(tmp_path, [(b"a.py", "one", None), (b"b.py", "two", None)])
    index = ProjectIndex.open(tmp_path, _no_imports)
    assert [index.differs(path, key) for path, key in ((b"a.py", "one"), (b"a.py", "two"), (b"c.py", "one"))] == [
        False,
        True,
        True,
    ]
    index.update(b"a.py", "two", None)
    assert (index.differs(b"a.py", "two"), index.overlay) == (False, 1)


def test_files_that_come_in_no_order_are_refused(tmp_path: Path) -> None:
    """Paths are found by halving: an unsorted table would lose files silently."""
    with pytest.raises(ValueError, match="ascending order"):
        build(tmp_path, [(b"b", "", None), (b"a", "", None)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep", [0, 1, 100, -1])
def test_an_index_that_was_not_written_whole_is_refused(tmp_path: Path, keep: int) -> None:
    """A machine may stop while it writes; the scanner then builds anew."""
    build(tmp_path, [(b"a.py", "", None)])
    file = tmp_path / INDEX_FILE
    file.write_bytes(file.read_bytes()[:keep] if keep >= 0 else file.read_bytes()[:-24])
    with pytest.raises(ValueError, match=r"empty|no index"):
        Base(file)


def test_a_project_of_more_files_than_a_segment_has_is_one_index(tmp_path: Path) -> None:
    """Files are numbered within a segment by two bytes; the 32,769th must not become the first."""
    count = SEGMENT_FILES + 2
    build(tmp_path, ((b"f%06d" % n, "", None) for n in range(count)))
    index = ProjectIndex.open(tmp_path, _no_imports)
    last = b"f%06d" % (count - 1)
    number = index.number_of(last)
    assert (len(index), number, len(index.base.segments)) == (count, count - 1, 2)
    hits = index.hits(hash_of(last.decode()))
    rows = hits.rows(Field.PATH)
    assert list(hits.infos_of([0, 1, count - 1], Field.PATH)) == rows
    assert [index.path_of(n) for n, _ in rows] == [last]
