"""The section `project`: the listed files, counted, and what the project's manifests declare."""

from __future__ import annotations

import itertools
from collections import Counter

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.names import shown
from rlm_lock.sections.manifests.collecting import Manifests, Package
from rlm_lock.sections.manifests.model import Ecosystem, Manifest
from rlm_lock.sections.view import ProjectView, is_below

MOST_DIRECTORIES = 20_000
MOST_CHARACTERS = 2_000_000
"""Maximum number of directory paths that are named, and of their characters; all are counted."""

MOST_EXTENSIONS = 200
_LONGEST_EXTENSION = 20
NO_EXTENSION, OTHER_EXTENSIONS = "(none)", "(other)"


@dataclass(frozen=True, slots=True)
class Directories:
    """The folders that contain a listed file at any depth, each followed by ``/``; the top is not counted."""

    count: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Files:
    """How many files git lists, and how many it neither tracks nor ignores."""

    count: int
    by_extension: dict[str, int]
    untracked: int


@dataclass(frozen=True, slots=True)
class EcosystemCount:
    """How many different dependencies the manifests of one ecosystem declare."""

    total: int
    internal: int
    external: int


@dataclass(frozen=True, slots=True)
class Dependencies:
    """How many different dependencies are declared: those in the project, and the others."""

    total: int
    internal: int
    external: int
    by_ecosystem: dict[str, EcosystemCount]


@dataclass(frozen=True, slots=True)
class Project:
    """The section `project`.

    Attributes:
        root: "." in whatever is stored; the absolute path is filled in when a caller is answered.
        path: the folder to which it is narrowed, or empty.
        packages: up to fifty of the packages that manifests name.
        manifests: what each of them declares.
        missing: what was left out, as sentences.
    """

    root: str
    path: str
    directories: Directories
    files: Files
    dependencies: Dependencies
    packages: tuple[Package, ...]
    manifests: tuple[Manifest, ...]
    missing: tuple[str, ...]


def project_of(view: ProjectView, read: Manifests, below: bytes = b"") -> Project:
    """Return the structure of a project, or of one of its folders, whose manifests were read."""
    directories, files, missing = _counted(view, below)
    return Project(
        root=".",
        path=shown(below),
        directories=directories,
        files=files,
        dependencies=_dependencies(read),
        packages=read.packages,
        manifests=read.manifests,
        missing=(*missing, *read.missing),
    )


def _counted(view: ProjectView, below: bytes) -> tuple[Directories, Files, tuple[str, ...]]:
    folders: set[bytes] = set()
    extensions: Counter[bytes] = Counter()
    count = untracked = 0
    for entry in view.files():
        if not is_below(entry.path, below):
            continue
        if not entry.is_tracked:
            untracked += 1
            continue
        count += 1
        folder, _, name = entry.path.rpartition(b"/")
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
        extensions[_extension(name)] += 1
    inside = sorted(folder for folder in folders if is_below(folder, below))
    named = _named(inside)
    missing = () if len(named) == len(inside) else (f"Only {len(named):,} of {len(inside):,} directories are named.",)
    return Directories(len(inside), named), Files(count, _most_frequent(extensions), untracked), missing


def _named(folders: list[bytes]) -> tuple[str, ...]:
    """Return the paths that are named, within a bound on their number and characters."""
    sizes = itertools.accumulate(map(len, folders[:MOST_DIRECTORIES]))
    count = sum(1 for _ in itertools.takewhile(lambda size: size <= MOST_CHARACTERS, sizes))
    return tuple(shown(folder) + "/" for folder in folders[:count])


def _extension(name: bytes) -> bytes:
    stem, dot, ending = name.rpartition(b".")
    return dot + ending if stem.strip(b".") and ending else b""


def _most_frequent(extensions: Counter[bytes]) -> dict[str, int]:
    """Return the extensions by frequency; odd ones and rare ones among very many are one sum."""
    found: Counter[str] = Counter()
    for place, (extension, count) in enumerate(sorted(extensions.items(), key=lambda item: (-item[1], item[0]))):
        if place >= MOST_EXTENSIONS or len(extension) > _LONGEST_EXTENSION:
            found[OTHER_EXTENSIONS] += count
        else:
            found[shown(extension) or NO_EXTENSION] += count
    return dict(found)


def _dependencies(read: Manifests) -> Dependencies:
    """Count names: a dependency that several manifests declare counts once, and as internal if any of them says so."""
    inside: dict[Ecosystem, set[str]] = {}
    every: dict[Ecosystem, set[str]] = {}
    for manifest in read.manifests:
        for dependency in manifest.dependencies:
            every.setdefault(manifest.ecosystem, set()).add(dependency.name)
            if dependency.is_internal:
                inside.setdefault(manifest.ecosystem, set()).add(dependency.name)
    counts = {
        ecosystem.value: EcosystemCount(
            total=len(names),
            internal=len(inside.get(ecosystem, ())),
            external=len(names) - len(inside.get(ecosystem, ())),
        )
        for ecosystem, names in sorted(every.items())
    }
    return Dependencies(
        total=sum(count.total for count in counts.values()),
        internal=sum(count.internal for count in counts.values()),
        external=sum(count.external for count in counts.values()),
        by_ecosystem=counts,
    )
