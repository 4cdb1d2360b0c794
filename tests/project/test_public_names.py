"""What users may rely on changes on purpose only, and says what types it has."""

import os
from pathlib import Path

import pytest
from public_names import described, undeclared

PINNED = Path(__file__).with_name("public_names.txt")
PACKAGES = ("client/rlm_client", "sandbox/rlm_sandbox/policy")
"""Packages that say what of them is public."""
HEAD = """\
What users may rely on: the names that a package lists in __all__, with their signatures. A change of this file is a
change for users. `make public-names` writes it; say in CHANGELOG.md what has changed.

"""


def test_public_names_change_on_purpose_only(root: Path) -> None:
    """A name that goes, and a signature that changes, break the programs of users."""
    now = HEAD + "\n".join(line for package in PACKAGES for line in described(root / package))
    if os.environ.get("RLM_PUBLIC_NAMES"):
        PINNED.write_text(now)
    changed = set(now.splitlines()) ^ set(PINNED.read_text().splitlines())
    assert sorted(changed) == [], "if this is meant, write them by `make public-names`"
    assert now == PINNED.read_text()


def test_each_public_type_is_declared(root: Path) -> None:
    """A user's type checker may infer another type than ours: the cheap part of `make verify-types`."""
    assert undeclared(root / "client/rlm_client") == []


@pytest.mark.parametrize(
    ("source", "is_declared"),
    [
        ("def f(x: int) -> None: ...", True),
        ("def f(x) -> None: ...", False),
        ("def f(*x: int, **y) -> None: ...", False),
        ("async def f(): ...", False),
        ("class A:\n    x = 1", True),
        ("class A:\n    x = f()", False),
        ("class A:\n    x: Final = f()", True),
        ("class A:\n    def __init__(self, x: int) -> None:\n        self.x = x", True),
        ("class A:\n    def __init__(self) -> None:\n        self.x = f()", False),
        ("class A:\n    def __init__(self) -> None:\n        self._x = f()", True),
    ],
)
def test_what_is_not_declared_is_found(tmp_path: Path, source: str, is_declared: bool) -> None:
    """Each way to leave out a type."""
    (tmp_path / "module.py").write_text(source)
    assert (undeclared(tmp_path) == []) is is_declared
