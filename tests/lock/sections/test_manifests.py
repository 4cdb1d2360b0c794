"""What manifests declare, without executing any of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from project_folders import FolderView, write

from rlm_lock.sections.manifests.collecting import KINDS, Kind, Manifests, manifest_kind, read_manifests
from rlm_lock.sections.manifests.model import Declared, Dependency, LockFile, Unreadable
from rlm_lock.sections.structure import project_of


def _read(root: Path, files: dict[str, str], below: bytes = b"") -> Manifests:
    write(root, files)
    return read_manifests(FolderView(root, is_git=False), below)


def _declared(read: Manifests) -> dict[str, list[str]]:
    """What each manifest declares, as ``name requirement (group)``; what is internal has a star."""
    return {
        manifest.path: [_line(dependency) for dependency in manifest.dependencies]
        for manifest in read.manifests
        if manifest.dependencies
    }


def _line(dependency: Dependency) -> str:
    star = "*" if dependency.is_internal else ""
    return f"{star}{dependency.name} {dependency.requirement} ({dependency.group})".replace("  ", " ")


SAMPLES: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("manifest_samples.yaml").read_text()
)


@pytest.mark.parametrize("ecosystem", SAMPLES)
def test_dependencies_of_each_ecosystem(ecosystem: str, tmp_path: Path) -> None:
    """L-2: a dependency that lies in the project is internal, in whichever way its ecosystem says so."""
    sample = SAMPLES[ecosystem]
    read = _read(tmp_path, sample["files"])
    assert _declared(read) == sample["declared"]
    assert read.missing == ()


def test_a_package_has_a_name_a_version_and_entries(tmp_path: Path) -> None:
    """L-2: what the project's own packages are called, and where they begin; setup.py is not executed."""
    read = _read(tmp_path, {**SAMPLES["Python"]["files"], "setup.py": "open('made', 'w')\n"})
    assert ("The.Thing", "1.2") in [(package.name, package.version) for package in read.packages]
    assert "thing.main:run" in read.entries
    assert not (tmp_path / "made").exists()


def test_a_dependency_of_several_manifests_counts_once(tmp_path: Path) -> None:
    """L-2: the total is the sum of what is internal and external, and of the ecosystems."""
    write(tmp_path, {**SAMPLES["Cargo"]["files"], "Gemfile": "gem 'rails'\n"})
    view = FolderView(tmp_path, is_git=False)
    found = project_of(view, read_manifests(view)).dependencies
    assert (found.total, found.internal, found.external) == (6, 1, 5)
    assert {name: count.total for name, count in found.by_ecosystem.items()} == {"ruby": 1, "rust": 5}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("package.json", "[" * 300 + "]" * 300, "nested deeper than 200"),
        ("package.json", "[" * 100_000 + "]" * 100_000, "nested too deep"),
        ("package.json", '{"a": "' + "x" * (1 << 20) + '"}', "longer than 1 MiB"),
        ("package.json", "[]", "no table"),
        ("Cargo.toml", "a = " + "[" * 300 + "]" * 300, "nested"),
        ("Cargo.toml", "a" + ".a" * 250 + " = 1", "nested deeper than 200"),
        ("Cargo.toml", "a" + ".a" * 100_000 + " = 1", "too many dots"),
        ("setup.py", "(" * 100 + ")" * 100, "nested too deep"),
        ("setup.py", "-" * 30_000 + "1", "no Python"),
        ("setup.cfg", "a" + " " * 50_000 + "b", "or a line of it"),
        ("pyproject.toml", "\x00", "no TOML"),
    ],
)
def test_what_is_too_deep_or_too_long_is_refused_and_told(name: str, content: str, told: str, tmp_path: Path) -> None:
    """A manifest of a hostile repository cannot hold the scan, and the reader learns what is missing."""
    read = _read(tmp_path, {name: content})
    assert [manifest.dependencies for manifest in read.manifests] == [()]
    assert told in read.manifests[0].note
    assert read.missing == (f"{name}: {read.manifests[0].note}",)


def test_links_and_secrets_are_not_read(tmp_path: Path) -> None:
    """A link may lead out of the project, and what holds a secret stays where it is."""
    (tmp_path / "requirements.txt").symlink_to("/etc/passwd")
    write(tmp_path, {"package.json": '{"dependencies": {"a": "1"}}'})
    read = read_manifests(FolderView(tmp_path, is_git=False, secrets=["package.json"]))
    assert _declared(read) == {}
    assert len(read.missing) == 2


def test_a_monorepo_names_fifty_packages(tmp_path: Path) -> None:
    """The list of packages has a bound, and says how to see the others."""
    names = [f"packages/p{number:03}/package.json" for number in range(60)]
    read = _read(tmp_path, {name: '{"name": "' + name[9:13] + '"}' for name in names})
    assert len(read.packages) == 50
    assert read.missing == ("Only 50 of 60 packages are named; narrow the question with `path`.",)
    assert [package.name for package in _read(tmp_path, {}, b"packages/p055").packages] == ["p055"]


_WORDS = sorted({word for sample in SAMPLES.values() for text in sample["files"].values() for word in text.split()})
_PARTS = st.one_of(
    st.sampled_from([*" \n\t=[]{}()<>'\"/:.,#@-_*\\", "a", "1", "é", "\0"]),
    st.sampled_from(_WORDS),
    st.text(max_size=5),
)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.read.__name__)
@settings(deadline=None, max_examples=25)
@given(parts=st.lists(_PARTS, max_size=60), junk=st.binary(max_size=200))
def test_no_text_makes_a_reader_fail(kind: Kind, parts: list[str], junk: bytes) -> None:
    """Whatever lies under the name of a manifest, reading it ends with an answer or a note."""
    for source in ("".join(parts), " ".join(parts), "\n".join(parts), junk.decode("utf-8", "replace")):
        try:
            found: Declared | str = kind.read(source)
        except LockFile:
            continue
        except Unreadable as unreadable:
            found = str(unreadable)
        assert isinstance(found, Declared) or found


_KEYS = st.sampled_from(
    "name version dependencies workspaces packages bin require repositories type url project tool path".split()
)
_VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4)),
    max_leaves=20,
)


@settings(deadline=None, max_examples=80)
@given(value=st.dictionaries(_KEYS, _VALUES, max_size=5))
def test_no_type_makes_a_reader_fail(value: dict[str, object]) -> None:
    """Where a text is expected a hostile manifest has a list, and the other way round."""
    source = json.dumps(value)
    toml = "".join(f"{key} = {_toml(part)}\n" for key, part in value.items())
    for name in (b"package.json", b"composer.json", b"pyproject.toml", b"Cargo.toml", b"gradle/libs.versions.toml"):
        kind = manifest_kind(name)
        assert kind is not None
        kind.read(source if name.endswith(b".json") else toml)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "")
