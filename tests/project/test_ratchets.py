"""What may only become less: sleeps in tests, long modules, folders of tests whose types nobody checks.

Each list below shrinks and never grows. An entry that is no longer needed fails the test until it is removed.
"""

import ast
import re
import tomllib
from pathlib import Path

LINES = 400
"""How long a module may be, in lines."""

SLEEPS = {
    "tests/chaos/test_chaos.py": (1, "an instant at random is what it tries"),
    "tests/kernel/supervisor/test_rollback.py": (1, "lets a task begin, in the same turn of the loop"),
    "tests/kernel/supervisor/test_worker_link.py": (1, "ten times as long as what must not happen would take"),
    "tests/kernel/worker/test_waiting.py": (1, "the time that passes is what must not count"),
    "tests/mcp_server/tools/test_journal_writer.py": (
        1,
        "ten times as long as what must not happen would take",
    ),
    "tests/memory/transcripts/test_folding.py": (1, "lets others run in a summarizer, without a clock"),
    "tests/support/model_endpoint.py": (2, "a slow endpoint is what it plays"),
    "tests/support/waiting.py": (3, "the one place that polls, or lets everything run that can"),
}
"""Files of tests that sleep: how often, and why no event takes the place of it."""

PLAIN = {r"dict\[str, Any\]": 43, r"dict\[str, Json\]": 40, r"\bJsonObject\b": 404, r"\bNamespace\b": 53}
"""Lines of product code with an object whose fields have no types, by its spelling.

They are JSON of users, globals of their code, what third parties' classes demand, and the sections of a lock.
"""

UNTYPED = 49
"""So many modules and folders of tests have types that mypy does not check: pyproject.toml lists them."""


def _sleeps(path: Path) -> int:
    """How often a file sleeps: calls, not the text of cells, whose work sleeping may be."""
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = [call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls]
    return names.count("sleep")


def test_tests_wait_for_events(tracked_files: list[Path], root: Path) -> None:
    """A sleep is too long on a quiet machine and too short on a busy one: see tests/support/waiting.py."""
    tests = [path for path in tracked_files if path.suffix == ".py" and path.is_relative_to(root / "tests")]
    found = {str(path.relative_to(root)): count for path in tests if (count := _sleeps(path))}
    assert found == {name: count for name, (count, _) in SLEEPS.items()}


def test_no_module_is_longer_than_can_be_read_at_once(source_files: list[Path], root: Path) -> None:
    """A module that is too long to read at once is two modules."""
    lines = {str(path.relative_to(root)): len(path.read_text().splitlines()) for path in source_files}
    assert {name: count for name, count in lines.items() if count > LINES} == {}


def test_plain_dictionaries_become_fewer(source_files: list[Path]) -> None:
    """A message between processes is a class, so that a field which is renamed fails everywhere."""
    lines = [line for path in source_files for line in path.read_text().splitlines()]
    found = {spelling: sum(re.search(spelling, line) is not None for line in lines) for spelling in PLAIN}
    assert {spelling for spelling, count in found.items() if count > PLAIN[spelling]} == set(), (
        f"give it a type: {found}"
    )


def test_the_types_of_ever_more_tests_are_checked(root: Path) -> None:
    """What a test calls by a wrong type is noticed before it runs; a new test is checked."""
    overrides = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    [unchecked] = [override["module"] for override in overrides if override.get("ignore_errors")]
    assert len(unchecked) == UNTYPED, "it may only become less: then write the lower number here"
    folders = (root, root / "tests/support", root / "tests/escapes", root / "tests/seeds")
    paths = [name.removesuffix(".*").replace(".", "/") for name in unchecked]
    assert [path for path in paths if not any(list(folder.glob(f"{path}*")) for folder in folders)] == []


def test_frozen_classes_cost_a_start_nothing(source_files: list[Path], root: Path) -> None:
    """Those of the standard library were a third of a daemon's start: see rlm_ipc/late_dataclasses.py."""
    late = ("ipc", "lock", "mcp_server", "kernel/rlm_kernel/supervisor", "kernel/rlm_kernel/jupyter")
    found = []
    for path in source_files:
        text = path.read_text()
        place = path.relative_to(root)
        if any(place.is_relative_to(part) for part in late) and not place.is_relative_to("mcp_server/rlm_mcp/demo"):
            own = re.search(r"^from dataclasses import .*\bdataclass\b", text, re.MULTILINE)
            found += [str(place)] if own and "@dataclass(frozen=True" in text else []
    assert found == []
