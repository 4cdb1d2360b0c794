"""The sources keep the shape that the project gave itself."""

import ast
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.<-])/(?:home|root|Users|work)/(?!\.\.)[\w.-]+"),
    "the address of a package registry": re.compile(
        r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian\.org", re.IGNORECASE
    ),
    "an index option in a file": re.compile(r"^\s*--(?:extra-)?index-url|^\s*--find-links", re.MULTILINE),
    "unfinished work": re.compile(r"\b(?:TODO|FIXME|XXX)\b"),
}
NAMES_THEM_ON_PURPOSE = ("test_sources.py", "LICENSE")
SOURCE_ROOTS = ("ipc", "sandbox", "memory", "contexts", "lock", "client", "kernel", "mcp_server")


def _text(path: Path) -> str:
    content = path.read_bytes()
    return "" if b"\0" in content else content.decode("utf-8", "ignore")  # letters in a picture are chance


def test_the_import_layers_hold(root: Path) -> None:
    """Processes and libraries import downwards only, as pyproject.toml lists them."""
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([lint, "--no-cache"], cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_module_says_what_it_is_for(source_files: list[Path], root: Path) -> None:
    """The first thing in a module is its docstring."""
    silent = [str(path.relative_to(root)) for path in source_files if not ast.get_docstring(ast.parse(_text(path)))]
    assert silent == []


def test_package_init_files_hold_a_docstring_only(source_files: list[Path], root: Path) -> None:
    """Importing a package costs nothing, so that the front starts in milliseconds.

    Two public faces import each name on first use (tests/client, tests/sandbox/policy). Transcripts need all theirs at
    once, and the standard library only.
    """
    busy = [
        str(path.relative_to(root))
        for path in source_files
        if path.name == "__init__.py" and len(ast.parse(_text(path)).body) != 1
    ]
    assert busy == [
        "client/rlm_client/__init__.py",
        "memory/rlm_memory/transcripts/__init__.py",
        "sandbox/rlm_sandbox/policy/__init__.py",
    ]


def test_no_loose_python_lies_in_a_source_root(root: Path) -> None:
    """A stray kernel/__init__.py would make `import kernel` ours; it stays the user's."""
    roots = [root / folder for folder in (*SOURCE_ROOTS, "policies", "notebooks", "tests")]
    loose = [path for folder in roots for path in folder.glob("*.py") if path.name != "conftest.py"]
    assert loose == []


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_holds(what: str, tracked_files: list[Path], root: Path) -> None:
    """What belongs to one machine, one network or one afternoon stays out of the repository."""
    pattern = FORBIDDEN[what]
    found = [
        f"{path.relative_to(root)}: {match.group()}"
        for path in tracked_files
        if path.name not in NAMES_THEM_ON_PURPOSE and (match := pattern.search(_text(path)))
    ]
    assert found == []


def test_the_name_of_this_machine_stands_nowhere(tracked_files: list[Path], root: Path) -> None:
    """The checkout's own path and the host's name are in no file."""
    names = [name for name in (str(root) + "/", socket.gethostname()) if len(name) > 5 and name != "localhost"]
    found = [path.name for path in tracked_files for name in names if name in _text(path)]
    assert found == []


def test_the_locked_requirements_name_versions_and_hashes_only(root: Path) -> None:
    """Each requirement is pinned to one version and at least one hash; no address is recorded."""
    for name in ("runtime", "dev", "browser"):
        text = (root / "requirements" / f"{name}.txt").read_text()
        entries = re.split(r"\n(?=[A-Za-z0-9])", text)
        pinned = [entry for entry in entries if not entry.startswith("#")]
        assert len(pinned) > 10
        assert [e.split()[0] for e in pinned if "==" not in e.split()[0] or "--hash=sha256:" not in e] == []
        assert "://" not in text


def test_everything_that_runs_is_pinned_alike_for_development(root: Path) -> None:
    """What the tests ran on is what a user gets."""
    texts = [(root / f"requirements/{name}.txt").read_text() for name in ("runtime", "dev", "browser")]
    runtime, development, browser = (set(re.findall(r"^(\S+==\S+)", text, re.MULTILINE)) for text in texts)
    assert runtime - development == set()
    assert development - browser == set()
