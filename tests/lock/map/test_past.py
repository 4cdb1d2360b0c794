"""A map knows from commits which files belong together, and which have to do with the words of a question."""

from pathlib import Path

import pytest
from indexed_project import Project

from rlm_lock.listing.history import Commit
from rlm_lock.map.past import Past
from rlm_lock.map.question import terms_of

FILES = {name: f"def {name.rpartition('/')[2][0]}(): pass\n" for name in ("a/one.py", "b/two.py", "c/three.py")} | {
    f"z/filler{n}.py": f"def filler_{n}(): pass\n" for n in range(60)
}
COMMITS = [
    Commit("Speed up the parser", (b"b/two.py", b"gone.py")),
    Commit("Fix a leak of sockets", (b"a/one.py", b"c/three.py")),
    Commit("Speed up the tests", (b"z/filler1.py",)),
    *(Commit(f"Number {n}", (f"z/filler{n}.py".encode(),)) for n in range(40)),
]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Files that have nothing in common but their commits."""
    return Project(tmp_path, FILES)


def first(project: Project, focus: list[str], about: str) -> str:
    """The first file of a map."""
    shown = project.map
    shown.past = Past(COMMITS)
    return shown.show(500, focus, about).text.split(":")[0]


def test_a_file_that_changed_with_the_one_in_hand_comes_first(project: Project) -> None:
    """L-4: neither imports the other, and they share no word."""
    assert first(project, ["a/one.py"], "") == "c/three.py"
    assert first(project, ["c/three.py"], "") == "a/one.py"


@pytest.mark.parametrize("question", ["make the parser speedy", "which parsers are slow?", "leaking sockets"])
def test_a_question_finds_the_files_of_commits_with_its_words(project: Project, question: str) -> None:
    """L-4: no file has these words, also not in its name; a commit that is gone from the tree does no harm."""
    assert first(project, [], question) == ("a/one.py" if "sockets" in question else "b/two.py")


def test_what_changed_lately_counts_more() -> None:
    """Code moves on: what commits did to other files long ago says less."""
    others = [Commit(f"Number {n}", (f"{n}".encode(),)) for n in range(900)]
    past = Past([Commit("A socket", (b"new", b"in hand")), *others, Commit("A socket", (b"old", b"in hand"))])
    for found in (past.together(b"in hand"), past.alike(terms_of("socket"))):
        assert found[b"new"] > found[b"old"] > 0
    assert past.together(b"new") == {b"in hand": 0.5}
