"""Every promise has a test that names it, and every named promise exists."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ID = re.compile(r"\b[EFKLP]-\d+\b")
TestFunctions = list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]


@pytest.fixture(scope="module")
def manifest(root: Path) -> dict[str, dict[str, str]]:
    """Return the manifest: id to behaviour and known gap."""
    loaded: dict[str, dict[str, str]] = yaml.safe_load((root / "tests/requirements.yaml").read_text())
    return loaded


@pytest.fixture(scope="module")
def named(test_functions: TestFunctions) -> dict[str, list[str]]:
    """Return the ids that test docstrings name, each with the tests that name it."""
    found: dict[str, list[str]] = {}
    for path, function in test_functions:
        for requirement in ID.findall(ast.get_docstring(function) or ""):
            found.setdefault(requirement, []).append(f"{path.name}::{function.name}")
    return found


def test_every_requirement_is_named_by_a_test(manifest: dict[str, dict[str, str]], named: dict[str, list[str]]) -> None:
    """A promise without a test that names it is not one that we keep."""
    assert sorted(set(manifest) - set(named)) == []


def test_every_requirement_that_a_test_names_exists(
    manifest: dict[str, dict[str, str]], named: dict[str, list[str]]
) -> None:
    """A test cannot prove a requirement that nobody wrote down."""
    unknown = {requirement: tests for requirement, tests in named.items() if requirement not in manifest}
    assert unknown == {}


def test_the_manifest_is_complete_and_says_each_behaviour_in_a_sentence(
    manifest: dict[str, dict[str, str]],
) -> None:
    """The ids of each family run without holes, and each entry has a sentence and nothing unknown."""
    found = [(family, int(number)) for family, _, number in (requirement.partition("-") for requirement in manifest)]
    last = dict(found)
    assert found == [(family, number) for family in last for number in range(1, last[family] + 1)]
    for requirement, entry in manifest.items():
        assert set(entry) <= {"behaviour", "gap"}, requirement
        assert all(text.endswith(".") and len(text) > 20 for text in entry.values()), requirement


def test_every_test_says_in_a_docstring_what_it_proves(test_functions: TestFunctions) -> None:
    """The name is the outcome; the docstring says for whom or why."""
    silent = [f"{path.name}::{test.name}" for path, test in test_functions if not ast.get_docstring(test)]
    assert silent == []
