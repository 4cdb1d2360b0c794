"""What the tests about the repository itself share: where it is, and what of it is ours."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 50


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
    """Return the Python files of the four packages."""
    roots = tuple(ROOT / folder for folder in ("sandbox", "kernel", "memory", "mcp_server"))
    return [path for path in tracked_files if path.suffix == ".py" and path.is_relative_to(ROOT) and _in(path, roots)]


@pytest.fixture(scope="session")
def test_functions(tracked_files: list[Path]) -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Return every test function of the suite with the file it stands in."""
    files = [path for path in tracked_files if path.name.startswith("test_") and path.suffix == ".py"]
    return [(path, function) for path in files for function in _tests_of(path)]


@pytest.fixture(scope="module")
def daemon(module_isolation: object) -> Iterator[Path]:
    """Start the daemon, the host and a first kernel for the module; return the program `rlm-kernel`.

    The host outlives the daemon on purpose, so that sessions survive it; here it is ended with the module.
    """
    program = Path(sys.executable).with_name("rlm-kernel")
    with _ended():
        command = [program, "run", "--session", "first", "None"]
        subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        yield program
        subprocess.run([program, "daemon", "stop"], capture_output=True, timeout=SECONDS, check=True)


@pytest.fixture
def ended() -> Iterator[None]:
    """End, politely, the daemon and the host that one test starts."""
    with _ended():
        yield


@contextmanager
def _ended() -> Iterator[None]:
    before = set(psutil.Process().children(recursive=True))
    yield
    started = [child for child in psutil.Process().children(recursive=True) if child not in before]
    for child in started:
        with suppress(psutil.NoSuchProcess):
            child.terminate()
    _, left = psutil.wait_procs(started, timeout=SECONDS)
    assert left == []


def _in(path: Path, roots: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(root) for root in roots)


def _tests_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node
