"""`make mutants`: which faults it makes of a module, and that what it says of a fault is true."""

import ast
from pathlib import Path

import mutants
from mutants_areas import AREAS, EQUIVALENT

SOURCE = '''
"""A module."""
import os
LIMIT = 10
WAIT_SECONDS = 3


def f(a: int, b: bool = True) -> int:
    """Add up."""
    if a < LIMIT and not b:
        raise ValueError(f"{a + 1} is few")
    a += 1
    log.info("it is %s", a - 1)
    os.sync()
    for _ in range(3):
        continue
    return a + os.getpid()
'''
LINES = {
    "LIMIT = 10": {"LIMIT = (10 + 1)", "LIMIT = (10 - 1)"},
    "def f(a: int, b: bool = True) -> int:": {"def f(a: int, b: bool = False) -> int:"},
    "if a < LIMIT and not b:": {
        "if (a < LIMIT or not b):",
        "if (a <= LIMIT) and not b:",
        "if a < LIMIT and (b):",
    },
    'raise ValueError(f"{a + 1} is few")': {"pass"},
    "a += 1": {"pass", "a = 1", "a += (1 + 1)", "a += (1 - 1)"},
    "os.sync()": {"pass"},
    "for _ in range(3):": {"for _ in range((3 + 1)):", "for _ in range((3 - 1)):"},
    "continue": {"pass"},
    "return a + os.getpid()": {"return None", "return (a - os.getpid())"},
}


def test_each_fault_changes_one_thing_and_none_is_in_a_text() -> None:
    """Annotations, messages, imports, logging and times are left alone; each is a program."""
    found = mutants.mutants_of("m.py", SOURCE)
    told: dict[str, set[str]] = {}
    for mutant in found:
        told.setdefault(mutant.before_line, set()).add(mutant.after_line)
        changed = mutant.apply(SOURCE)
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(SOURCE))
        assert len(changed.splitlines()) == len(SOURCE.splitlines())
    assert told == LINES
    assert len({mutant.name for mutant in found}) == len(found)


def test_the_table_names_modules_functions_and_tests_that_there_are(root: Path) -> None:
    """What moves takes its place in the table along; a reason for a line that has gone says nothing."""
    names: set[str] = set()
    for area in AREAS.values():
        found = list(mutants.mutants_in(area))
        names |= {mutant.name for mutant in found}
        for place in area.sources:
            path, _, chosen = place.partition(":")
            functions = {mutant.function for mutant in found if mutant.path == path}
            assert functions, path
            for function in filter(None, chosen.split(",")):
                assert any(name.startswith(function) for name in functions), (path, function)
        for test in area.tests:
            file, _, named = test.partition("::")
            assert f"def {named}" in (root / file).read_text(), test
    assert set(EQUIVALENT) <= names


def test_a_fault_that_no_test_notices_is_told_from_one_that_is_killed(root: Path, tmp_path: Path) -> None:
    """In a copy: the checkout stays as it is."""
    path = "sandbox/rlm_sandbox/policy/compare.py"
    before = (root / path).read_bytes()
    copied = mutants.Copy(tmp_path / "copied")
    source = (copied.tree / path).read_text()
    tests = ("tests/sandbox/policy/test_compare_parts.py", "-k", "named or admitted")
    by_line = {mutant.after_line: mutant for mutant in mutants.mutants_of(path, source)}
    killed = by_line["missing = [wall for wall in outer.walls.require if (wall in inner.walls.require)]"]
    survives = by_line["zero = inf if endless_at_zero else (0 - 1)"]
    for mutant, passes in ((survives, True), (killed, False)):
        copied.write(path, mutant.apply(source))
        assert copied.passes(tests, 100.0) is passes, copied.said
    assert (root / path).read_bytes() == before
