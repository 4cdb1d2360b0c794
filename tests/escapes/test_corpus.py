"""Cases of the escape corpus are held by each wall that must hold them, and work where no wall stands.

A run tries a share of each family (`escape_corpus.share`); a failure names the cases, and `RLM_ESCAPES_SEED` chooses
the same ones again.
"""

import re
import sys
from collections.abc import Iterator

import pytest
from escape_arena import USERS, Arena, arena
from escape_corpus import Case, load, share

FAMILIES = load()
IN_PROCESS = [family for family, cases in FAMILIES.items() if cases[0].kind != "message"]
SMALLEST_CORPUS = 250
LINUX_ONLY = pytest.mark.skipif(sys.platform != "linux", reason="Landlock, seccomp and the paths are Linux's")


@pytest.fixture(scope="module")
def field() -> Iterator[Arena]:
    """The arena of this module's cases."""
    with arena(case for family in IN_PROCESS for case in FAMILIES[family]) as made:
        yield made


def concerned(family: str, wall: str) -> list[Case]:
    """The cases of a family that a wall must hold."""
    return [case for case in FAMILIES[family] if case.concerns(wall)]


def chosen(cases: list[Case], by: str) -> list[Case]:
    """The cases that this run tries; each way to try them chooses its own."""
    return share(cases, lambda case: f"{by}/{case.id}")


BY_WALL = {wall: [family for family in IN_PROCESS if concerned(family, wall)] for wall in ("language", "os")}


@pytest.mark.parametrize("family", BY_WALL["language"])
def test_the_language_wall_holds(field: Arena, family: str) -> None:
    """K-28: behind the language wall alone, no case gets anything."""
    outcomes = [field.language(case) for case in chosen(concerned(family, "language"), "language")]
    assert [str(outcome) for outcome in outcomes if outcome.escaped] == []
    # A case that no session can begin tries nothing: give it another module, or say that this is what it tries.
    assert [str(outcome) for outcome in outcomes if not outcome.tries_what_it_says()] == []


@LINUX_ONLY
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("family", BY_WALL["os"])
def test_the_operating_systems_wall_holds(field: Arena, family: str, user: str) -> None:
    """K-28: with the language wall off, what a case gets in the process leads to nothing outside it."""
    outcomes = [field.os(case, user) for case in chosen(concerned(family, "os"), f"os/{user}")]
    assert [str(outcome) for outcome in outcomes if outcome.escaped] == []


@LINUX_ONLY
@pytest.mark.parametrize("family", IN_PROCESS)
def test_without_walls_the_same_code_gets_out(field: Arena, family: str) -> None:
    """The control: no case is held because it is broken."""
    cases = [case for case in FAMILIES[family] if case.has_control()]
    outcomes = [field.plain(case) for case in chosen(cases, "plain")]
    assert [str(outcome) for outcome in outcomes if not outcome.escaped] == []
    assert cases or all(case.expect == "refused" for case in FAMILIES[family])


def test_the_corpus_is_as_large_as_promised() -> None:
    """Both walls are tried with more than two hundred and fifty cases, nearly all of them proved by a control."""
    cases = [case for family in FAMILIES.values() for case in family]
    for wall in ("language", "os"):
        assert sum(case.wall in (wall, "both") for case in cases) >= SMALLEST_CORPUS
    assert sum(case.works == "attempt" for case in cases) < len(cases) / 10


def test_a_source_is_named_for_every_case() -> None:
    """A reader can find out where an attack comes from."""
    assert [
        case.id for family in FAMILIES.values() for case in family if len(re.findall(r"\w+", case.source)) < 2
    ] == []
