"""What the tests about the repository itself share: where it is, and what of it is ours."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the folder of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def tracked_files() -> list[Path]:
    """Return every file that git knows of or would add, as absolute paths."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [path for name in listed if name and (path := ROOT / name).is_file()]


@pytest.fixture(scope="session")
def source_files(tracked_files: list[Path]) -> list[Path]:
    """Return the Python files of the seven packages."""
    roots = tuple(
        ROOT / folder for folder in ("ipc", "sandbox", "memory", "contexts", "lock", "client", "kernel", "mcp_server")
    )
    return [path for path in tracked_files if path.suffix == ".py" and path.is_relative_to(ROOT) and _in(path, roots)]


@pytest.fixture(scope="session")
def test_functions(tracked_files: list[Path]) -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return every test function of the suite with the file it stands in."""
    files = [path for path in tracked_files if path.name.startswith("test_") and path.suffix == ".py"]
    return [(path, function) for path in files for function in _tests_of(path)]


def _in(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _tests_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node
