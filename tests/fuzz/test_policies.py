"""Whatever is in a policy file, the answer is a policy or an error that names file, line and field."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_sandbox.errors import PolicyFileError, PolicyProblem
from rlm_sandbox.policy import checked_json, load_policy, resolve
from rlm_sandbox.policy.model import FilePolicy, LanguagePolicy, Limits, Policy, WallPolicy

FUZZ = settings.get_profile("fuzz")

SHIPPED = sorted((Path(__file__).parents[2] / "policies").rglob("*.yaml"))
LONGEST = max(file.read_text(encoding="utf-8").count("\n") for file in SHIPPED)
"""A problem may lie in the policy that one of these extends."""
TEXTS = {file.stem: file.read_text(encoding="utf-8") for file in SHIPPED}
SECTIONS = (Policy, LanguagePolicy, FilePolicy, Limits, WallPolicy)
FIELDS = [part.name for section in SECTIONS for part in fields(section)]

WORDS = ["512 MiB", "${workspace}", "${scratch}/..", "~/x", "/", "default", "strict", "off", "eval", "*", "/\udcff"]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10), st.sampled_from(WORDS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FIELDS, "add", "remove"]) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the policy of each example is written."""
    return tmp_path_factory.mktemp("policies") / "mine.yaml"


def check(file: Path, data: bytes) -> None:
    """Read a file: a policy that can be resolved and written back, or an error that says where."""
    file.write_bytes(data)
    problems = _problems(file)
    lines = data.count(b"\n") + data.count(b"\r") + data.count("\u2028".encode()) + data.count("\x85".encode()) + 1
    assert all(problem.message and 1 <= problem.line <= max(lines, LONGEST) for problem in problems)


def _problems(file: Path) -> Sequence[PolicyProblem]:
    try:
        policy = load_policy(file)
    except PolicyFileError as error:
        return error.problems
    again = checked_json(resolve(policy, file.parent, file.parent).to_json())
    assert again.limits == policy.limits
    return ()


@settings(FUZZ)
@given(data=st.binary(max_size=300))
def test_arbitrary_bytes(file: Path, data: bytes) -> None:
    """K-28: a file that is no text, or no YAML."""
    check(file, data)


@settings(FUZZ)
@given(value=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4) | VALUES)
def test_arbitrary_values(file: Path, value: Any) -> None:
    """K-28: YAML that holds anything under the names of our fields."""
    check(file, yaml.dump(value, allow_unicode=True).encode("utf-8", "surrogateescape"))


@settings(FUZZ)
@given(
    name=st.sampled_from(sorted(TEXTS)),
    mutations=st.lists(
        st.tuples(st.integers(0, 4000), st.integers(0, 15), st.text(max_size=4) | SCALARS.map(str)), max_size=5
    ),
)
def test_damaged_policies(file: Path, name: str, mutations: list[tuple[int, int, str]]) -> None:
    """K-28: the policies that ship, with other text here and there."""
    text = TEXTS[name]
    for place, length, new in mutations:
        start = place % (len(text) + 1)
        text = text[:start] + new + text[start + length :]
    check(file, text.encode("utf-8", "surrogatepass"))


@settings(FUZZ)
@given(
    opening=st.sampled_from(["[", "{a: ", "- ", "? ", "a:\n ", "!!python/x ", "&a [", "*a ", "'"]),
    depth=st.integers(1, 600),
)
def test_deep_and_special_yaml(file: Path, opening: str, depth: int) -> None:
    """K-28: nesting, tags, anchors and open quotes end in an error, not in the parser."""
    check(file, (opening * depth).encode())
