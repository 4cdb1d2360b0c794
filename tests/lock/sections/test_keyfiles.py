"""The key files say in forty lines what a project is made of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from project_folders import FolderView, write

from rlm_ipc.messages import plain, read
from rlm_lock.sections.keyfiles.collecting import CRITICAL_PATTERNS, MOST_FILES, key_files_of, role_of
from rlm_lock.sections.keyfiles.model import KeyFiles, Role
from rlm_lock.sections.manifests.collecting import read_manifests
from rlm_lock.sections.view import Imported

PROJECT = {
    "pyproject.toml": "[project]\nname = 'shop'\n[project.scripts]\nshop = 'shop.start:run'\n",
    "requirements/locked.txt": "a==1 --hash=sha256:0\n",
    "src/shop/__init__.py": "",
    "src/shop/start.py": "",
    "src/shop/settings.py": "",
    "src/shop/models.py": "",
    "src/shop/urls.py": "",
    "src/shop/auth/jwt.py": "x = 1\n",
    "src/shop/auth/__init__.py": "",
    "src/shop/core.py": "",
    "src/shop/0001_migration_of_users.py": "",
    "config/production.yaml": "",
    "tests/conftest.py": "",
    "tests/auth/test_jwt.py": "",
    "tests/fixtures/package.json": "{}",
    ".github/workflows/ci.yml": "",
    "README.md": "",
    "docs/architecture.md": "",
    "vendor/x/main.go": "",
}
IMPORTS = {
    "src/shop/auth/jwt.py": [
        Imported("shop/core", b"src/shop/core.py"),
        Imported("shop/core/Basket", None),
        Imported("./other", None),
        Imported("shop", b"src/shop/__init__.py"),
        Imported("os/path"),
        Imported("os/path/join"),
        Imported("bad\x1b[2J"),
    ]
}


@pytest.fixture
def view(tmp_path: Path) -> FolderView:
    """Return a small project in which `core` is used most."""
    write(tmp_path, PROJECT)
    for name in PROJECT:
        os.utime(tmp_path / name, (1_772_015_400, 1_772_015_400))
    return FolderView(tmp_path, is_git=False, imports=IMPORTS, most_used=["src/shop/core.py", "tests/auth/test_jwt.py"])


def _key_files(view: FolderView, below: bytes = b"") -> KeyFiles:
    return key_files_of(view, read_manifests(view, below), below)


def test_key_files_have_roles_from_a_closed_list(view: FolderView) -> None:
    """L-3: by manifests, by names, by the critical patterns and by use; nothing of fixtures and vendors."""
    found = _key_files(view)
    assert {file.path: file.role.value for file in found.files} == {
        "pyproject.toml": "build",
        "src/shop/start.py": "entry",
        ".github/workflows/ci.yml": "ci",
        "README.md": "docs",
        "docs/architecture.md": "docs",
        "src/shop/urls.py": "api",
        "src/shop/models.py": "schema",
        "src/shop/settings.py": "config",
        "tests/conftest.py": "test",
        "src/shop/auth/__init__.py": "core-logic",
        "src/shop/auth/jwt.py": "core-logic",
        "config/production.yaml": "config",
        "src/shop/0001_migration_of_users.py": "schema",
        "src/shop/core.py": "core-logic",
        "tests/auth/test_jwt.py": "test",
    }
    assert {role.value for role in Role} >= {file.role.value for file in found.files}
    assert read(KeyFiles, plain(found)) == found


def test_a_key_file_has_a_time_a_size_and_imports_as_paths(view: FolderView) -> None:
    """L-3: imports are files of the project without their endings, other modules as their language writes them."""
    (jwt,) = [file for file in _key_files(view).files if file.path.endswith("jwt.py") and "tests" not in file.path]
    assert (jwt.last_modified, jwt.size_bytes) == ("2026-02-25T10:30:00Z", 6)
    assert jwt.imports == ("src/shop/core", "./other", "src/shop", "os.path", "bad\\x1b[2J")


def test_the_critical_patterns_name_the_files_that_fit(view: FolderView) -> None:
    """L-3: the patterns of the document, each with how many files fit it."""
    found = _key_files(view)
    assert found.critical_patterns == ("**/auth/**", "**/config/**", "**/*migration*")
    assert {critical.pattern: critical.paths for critical in found.critical_files} == {
        "**/auth/**": ("tests/auth/test_jwt.py", "src/shop/auth/__init__.py", "src/shop/auth/jwt.py"),
        "**/config/**": ("config/production.yaml",),
        "**/*migration*": ("src/shop/0001_migration_of_users.py",),
    }


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        (b"auth/a.py", ["**/auth/**"]),
        (b"x/author/a.py", []),
        (b"x/auth", []),
        (b"config/migrations/a.py", ["**/config/**"]),
        (b"db/Xmigration\n.sql", ["**/*migration*"]),
    ],
)
def test_the_patterns_find_what_they_say(path: bytes, fits: list[str]) -> None:
    """What finds the files quickly must mean what the pattern says."""
    assert [pattern for pattern, find in CRITICAL_PATTERNS.items() if find.search(path)] == fits


def test_there_are_at_most_forty(tmp_path: Path) -> None:
    """L-3: the list stays short in a large project, and files near the top come first."""
    names = [f"{'deep/' * (n % 5)}p{n}/{name}" for n in range(60) for name in ("package.json", "main.py", "README.md")]
    write(tmp_path, dict.fromkeys(names, "{}") | {"package.json": "{}"})
    found = _key_files(FolderView(tmp_path, is_git=False, most_used=names))
    assert len(found.files) == MOST_FILES
    assert found.files[0].path == "package.json"


def test_a_folder_narrows_the_key_files(view: FolderView) -> None:
    """Who works in one folder sees its key files only."""
    assert {file.path for file in _key_files(view, b"tests").files} == {"tests/conftest.py", "tests/auth/test_jwt.py"}


class _Clock(FolderView):
    seconds: float | None = None

    def last_modified(self, path: bytes) -> float | None:
        return self.seconds


@pytest.mark.parametrize("seconds", [1e20, -1e20, float(2**63), None])
def test_a_time_that_no_calendar_has_is_not_known(tmp_path: Path, seconds: float | None) -> None:
    """A hostile clock does not fail the section."""
    write(tmp_path, {"README": ""})
    view = _Clock(tmp_path, is_git=False)
    view.seconds = seconds
    assert [file.last_modified for file in _key_files(view).files] == [None]


def test_a_role_is_found_by_name() -> None:
    """The table of names: one example of each."""
    assert [role_of(path) for path in (b"a/Cargo.toml", b"a/x.proto", b"cmd/main.go", b"a.graphql", b"a/foo.py")] == [
        Role.BUILD,
        Role.API,
        Role.ENTRY,
        Role.SCHEMA,
        None,
    ]
