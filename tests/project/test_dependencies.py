"""What the sources import is declared, and what is declared is imported and argued for."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

OURS = {"rlm_ipc", "rlm_sandbox", "rlm_memory", "rlm_contexts", "rlm_lock", "rlm_client", "rlm_kernel", "rlm_mcp"}
PARTS = {"pydantic_core": "pydantic"}
"""Modules of one project that comes as several distributions, each pinned to the other."""

OPTIONAL = {"numpy", "pyarrow", "pandas", "matplotlib", "scipy", "sklearn", "PIL", "dspy", "rlm"}
"""Imported where they are installed only."""
EXTRAS = ("providers", "query", "documents", "urls")
"""Extras whose packages the sources import where they are needed."""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _declared(root: Path, *extras: str) -> set[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lists = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in extras)]
    return {_canonical(re.split(r"[ <>=!~;\[]", entry)[0]) for entries in lists for entry in entries}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]


@pytest.fixture(scope="module")
def imported(source_files: list[Path]) -> set[str]:
    """Return the distributions that the sources import, by canonical name."""
    modules = {name for path in source_files for name in _imports(path)}
    foreign = modules - OURS - OPTIONAL - set(sys.stdlib_module_names)
    owners = packages_distributions()
    return {_canonical(PARTS.get(module) or owners.get(module, [f"nobody's {module}"])[0]) for module in foreign}


def test_everything_that_is_imported_is_declared(imported: set[str], root: Path) -> None:
    """A package that another one happens to bring may be gone with its next release."""
    assert sorted(imported - _declared(root, *EXTRAS)) == []


def test_everything_that_is_declared_is_imported(imported: set[str], root: Path) -> None:
    """A dependency that nothing uses is a risk for nothing."""
    assert sorted(_declared(root, *EXTRAS) - imported) == []


def test_every_dependency_is_argued_for(root: Path) -> None:
    """docs/dependencies.md has each direct dependency, with what could take its place."""
    page = {_canonical(word) for word in re.findall(r"[\w.-]+", (root / "docs/dependencies.md").read_text())}
    extras = ("data", "dev", "browser", "stores", "zstd", "dspy", "rlms", *EXTRAS)
    assert sorted(_declared(root, *extras) - page) == []
