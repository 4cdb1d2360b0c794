"""Finds the manifests of a project, reads them within bounds, and decides which dependencies are in the project."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.names import shown, text_of
from rlm_lock.sections.globs import matches
from rlm_lock.sections.manifests.go_and_rust import read_cargo, read_go_mod, read_go_work
from rlm_lock.sections.manifests.javascript import read_package_json, read_pnpm_workspace
from rlm_lock.sections.manifests.jvm_and_dotnet import (
    read_csproj,
    read_gradle,
    read_gradle_settings,
    read_pom,
    read_version_catalog,
)
from rlm_lock.sections.manifests.model import (
    Declaration,
    Declared,
    Dependency,
    Ecosystem,
    LockFile,
    Manifest,
    Reader,
    Unreadable,
)
from rlm_lock.sections.manifests.python import (
    normal_python_name,
    read_pyproject,
    read_requirements,
    read_setup_cfg,
    read_setup_py,
)
from rlm_lock.sections.manifests.ruby_and_php import read_composer, read_gemfile, read_gemspec
from rlm_lock.sections.view import ProjectView, is_below, top_first

LONGEST_MANIFEST = 1 << 20
MOST_MANIFESTS = 1000
MOST_BYTES = 16 << 20
"""Maximum bytes of all manifests together."""

MOST_DEPENDENCIES = 2000
"""Maximum number for one manifest."""

MOST_PACKAGES = 50
_MOST_INCLUDED = 20
_MOST_WILDCARDS = 100
"""Maximum patterns of members in all workspaces: each is compared with the folder of every manifest."""

_LONGEST_TEXT = 200
_CREDENTIALS = re.compile(r"://[^/@\s]{0,200}@")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of manifest: its possible names, whose packages it declares, and its reader."""

    name: re.Pattern[bytes]
    ecosystem: Ecosystem
    read: Reader


KINDS = tuple(
    Kind(re.compile(name), ecosystem, read)
    for name, ecosystem, read in (
        (rb"pyproject\.toml", Ecosystem.PYTHON, read_pyproject),
        (rb"[\w.-]{0,60}requirements[\w.-]{0,60}\.txt", Ecosystem.PYTHON, read_requirements),
        (rb"setup\.cfg", Ecosystem.PYTHON, read_setup_cfg),
        (rb"setup\.py", Ecosystem.PYTHON, read_setup_py),
        (rb"package\.json", Ecosystem.JAVASCRIPT, read_package_json),
        (rb"pnpm-workspace\.ya?ml", Ecosystem.JAVASCRIPT, read_pnpm_workspace),
        (rb"go\.mod", Ecosystem.GO, read_go_mod),
        (rb"go\.work", Ecosystem.GO, read_go_work),
        (rb"Cargo\.toml", Ecosystem.RUST, read_cargo),
        (rb"pom\.xml", Ecosystem.JVM, read_pom),
        (rb"build\.gradle(\.kts)?", Ecosystem.JVM, read_gradle),
        (rb"settings\.gradle(\.kts)?", Ecosystem.JVM, read_gradle_settings),
        (rb"[\w-]{1,60}\.versions\.toml", Ecosystem.JVM, read_version_catalog),
        (rb"[\w.-]{1,100}\.csproj", Ecosystem.DOTNET, read_csproj),
        (rb"Gemfile", Ecosystem.RUBY, read_gemfile),
        (rb"[\w.-]{1,100}\.gemspec", Ecosystem.RUBY, read_gemspec),
        (rb"composer\.json", Ecosystem.PHP, read_composer),
    )
)


_ANY = re.compile(b"|".join(b"(?:%s)" % kind.name.pattern for kind in KINDS))
"""Excludes most files of a large project at once."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the project: the folder of its manifest, and its name there."""

    path: str
    ecosystem: Ecosystem
    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Manifests:
    """The contents of all manifests; ``entries`` are the files in which packages begin, as their manifests say."""

    manifests: tuple[Manifest, ...]
    packages: tuple[Package, ...]
    entries: tuple[str, ...]
    missing: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    path: str
    ecosystem: Ecosystem
    declared: Declared
    note: str = ""

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.path)


def manifest_kind(path: bytes) -> Kind | None:
    """Return what kind of manifest a file is by its name, if it is one."""
    name = path.rpartition(b"/")[2]
    if name.endswith(b".txt") and path.endswith(b"requirements/" + name):
        name = b"requirements.txt"
    if not _ANY.fullmatch(name):
        return None
    return next((kind for kind in KINDS if kind.name.fullmatch(name)), None)


def read_manifests(view: ProjectView, below: bytes = b"") -> Manifests:
    """Read every manifest of a project; a folder only narrows which of them are in the answer."""
    reading = _Reading(view)
    kinds = {entry.path: kind for entry in view.files() if (kind := manifest_kind(entry.path)) is not None}
    for path in top_first(kinds):
        reading.take(path, kinds[path])
    reading.read_included()
    inside = [manifest for manifest in reading.found if is_below(manifest.path.encode(), text_of(below).encode())]
    resolver = _Resolver(view, reading.found)
    packages = [manifest for manifest in inside if manifest.declared.name]
    missing = reading.missing()
    if len(packages) > MOST_PACKAGES:
        missing.append(f"Only {MOST_PACKAGES} of {len(packages)} packages are named; narrow the question with `path`.")
    return Manifests(
        manifests=tuple(_manifest(manifest, resolver) for manifest in inside),
        packages=tuple(
            Package(
                path=shown(manifest.folder) or ".",
                ecosystem=manifest.ecosystem,
                name=_cut(manifest.declared.name),
                version=_cut(manifest.declared.version),
            )
            for manifest in packages[:MOST_PACKAGES]
        ),
        entries=tuple(
            posixpath.normpath(posixpath.join(manifest.folder, entry)) if ":" not in entry else entry
            for manifest in inside
            for entry in manifest.declared.entries[:MOST_PACKAGES]
        ),
        missing=tuple(missing),
    )


class _Reading:
    """Reads manifests until a bound is reached, and remembers what it left out."""

    def __init__(self, view: ProjectView) -> None:
        self._view = view
        self._bytes = MOST_BYTES
        self._left_out = 0
        self.found: list[_Found] = []
        self._paths: set[bytes] = set()

    def take(self, path: bytes, kind: Kind) -> None:
        """Read one manifest."""
        if len(self.found) >= MOST_MANIFESTS or self._bytes <= 0:
            self._left_out += 1
            return
        self._paths.add(path)
        manifest = _Found(text_of(path), kind.ecosystem, Declared())
        self.found.append(manifest)
        data = self._view.read(path, LONGEST_MANIFEST + 1)
        if data is None:
            manifest.note = "It is not read: it is no regular file, or its name says that it holds secrets."
            return
        self._bytes -= len(data)
        if len(data) > LONGEST_MANIFEST:
            manifest.note = f"It is longer than {LONGEST_MANIFEST >> 20} MiB."
            return
        try:
            manifest.declared = kind.read(data.decode("utf-8-sig", "replace"))
        except LockFile:
            self.found.pop()
        except Unreadable as error:
            manifest.note = str(error)

    def read_included(self) -> None:
        """Read the files that requirements include with ``-r``, each once and only inside the project."""
        kind = next(kind for kind in KINDS if kind.read is read_requirements)
        known = {entry.path for entry in self._view.files()} if any(f.declared.includes for f in self.found) else set()
        place = 0
        while place < len(self.found):
            found = self.found[place]
            place += 1
            for include in found.declared.includes[:_MOST_INCLUDED]:
                path = posixpath.normpath(posixpath.join(found.folder, include)).encode()
                if path in known and path not in self._paths:
                    self.take(path, kind)

    def missing(self) -> list[str]:
        """Return what was left out, as sentences."""
        unread = [found for found in self.found if found.note]
        sentences = [f"{shown(found.path)}: {_cut(found.note)}" for found in unread[:20]]
        if len(unread) > len(sentences):
            sentences.append(f"{len(unread) - len(sentences)} more manifests could not be read.")
        if self._left_out:
            sentences.append(f"{self._left_out} manifests were not read: there are too many.")
        return sentences


class _Resolver:
    """Decides whether a dependency is in the project: by the path that it names, or as a member of a workspace."""

    def __init__(self, view: ProjectView, found: list[_Found]) -> None:
        self._members = _members(found)
        self._wanted = {
            place for one in found for declaration in one.declared.dependencies if (place := _place(one, declaration))
        }
        self._existing = self._looked_up(view) if self._wanted else set()

    def _looked_up(self, view: ProjectView) -> set[str]:
        seen: set[bytes] = set()
        for entry in view.files():
            path = entry.path
            while path and path not in seen:
                seen.add(path)
                path = path.rpartition(b"/")[0]
        return {"."} | {place for place in self._wanted if place.encode("utf-8", "replace") in seen}

    def is_internal(self, found: _Found, declaration: Declaration) -> bool:
        """Return whether a declared dependency is in the project."""
        if declaration.local:
            return _place(found, declaration) in self._existing
        return _normal(declaration.name, found.ecosystem) in self._members[found.ecosystem]


def _normal(name: str, ecosystem: Ecosystem) -> str:
    return normal_python_name(name) if ecosystem is Ecosystem.PYTHON else name


def _place(found: _Found, declaration: Declaration) -> str:
    """Return the path from the top that a declaration names; empty if it names none, or leaves the project."""
    local = declaration.local
    if not local or (local.startswith("/") and not local.startswith("//")):
        return ""
    path = posixpath.normpath(local[2:] if local.startswith("//") else posixpath.join(found.folder, local))
    return "" if path.startswith("..") else path


def _members(found: list[_Found]) -> Mapping[Ecosystem, set[str]]:
    """Return the names of the packages that belong to a workspace, its top among them."""
    members: dict[Ecosystem, set[str]] = {}
    wildcards = 0
    for ecosystem in Ecosystem:
        named = [one for one in found if one.ecosystem is ecosystem and one.declared.name]
        folders: set[str] = set()
        for top in (one for one in found if one.ecosystem is ecosystem and one.declared.members):
            folders.add(top.folder)
            for pattern in (posixpath.normpath(posixpath.join(top.folder, each)) for each in top.declared.members):
                if "*" not in pattern:
                    folders.add(pattern)
                elif (wildcards := wildcards + 1) <= _MOST_WILDCARDS:
                    folders.update(one.folder for one in named if matches(pattern, one.folder))
        members[ecosystem] = {_normal(one.declared.name, ecosystem) for one in named if one.folder in folders}
    return members


def _manifest(found: _Found, resolver: _Resolver) -> Manifest:
    dependencies = found.declared.dependencies
    note = found.note
    if len(dependencies) > MOST_DEPENDENCIES:
        note = f"Only {MOST_DEPENDENCIES:,} of {len(dependencies):,} dependencies are kept."
    return Manifest(
        path=shown(found.path),
        ecosystem=found.ecosystem,
        name=_cut(found.declared.name),
        version=_cut(found.declared.version),
        dependencies=tuple(
            Dependency(
                name=_cut(declaration.name),
                requirement=_cut(_CREDENTIALS.sub("://", declaration.requirement)),
                group=_cut(declaration.group),
                is_internal=resolver.is_internal(found, declaration),
            )
            for declaration in dependencies[:MOST_DEPENDENCIES]
        ),
        note=_cut(note),
    )


def _cut(text: str) -> str:
    return shown(text[:_LONGEST_TEXT])
