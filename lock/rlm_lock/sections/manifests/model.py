"""What is known of a manifest, and what a reader of one kind of manifest returns."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import field

from rlm_ipc.late_dataclasses import dataclass


class Ecosystem(enum.StrEnum):
    """Whose packages a manifest declares."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"
    GO = "go"
    RUST = "rust"
    JVM = "jvm"
    DOTNET = "dotnet"
    RUBY = "ruby"
    PHP = "php"


@dataclass(frozen=True, slots=True)
class Dependency:
    """A direct dependency as a manifest declares it.

    Attributes:
        name: as its ecosystem writes it.
        requirement: the versions or the place, as written.
        group: what it is for: ``runtime``, or the name of the group or scope.
        is_internal: whether it lies in this project.
    """

    name: str
    requirement: str
    group: str
    is_internal: bool


@dataclass(frozen=True, slots=True)
class Manifest:
    """One manifest; ``note`` says what was not read of it."""

    path: str
    ecosystem: Ecosystem
    name: str
    version: str
    dependencies: tuple[Dependency, ...]
    note: str


class Unreadable(ValueError):
    """A manifest cannot be read; its text is the note."""


class LockFile(ValueError):
    """A file with the name of a manifest was written by a program: it declares nothing."""


RUNTIME = "runtime"


@dataclass(slots=True)
class Declaration:
    """A dependency before anybody has looked where it lies.

    Attributes:
        name, requirement, group: as in `Dependency`.
        local: the folder or file that the manifest names, relative to its own folder.
    """

    name: str
    requirement: str = ""
    group: str = RUNTIME
    local: str = ""


@dataclass(slots=True)
class Declared:
    """What one manifest says.

    Attributes:
        name, version: of the package.
        dependencies: in their order.
        members: patterns of the folders that belong to this manifest's workspace.
        includes: other files, relative to this one, whose declarations belong to it: ``-r`` of requirements.
        entries: where the package begins: files relative to the manifest, or ``module:function`` of Python.
    """

    name: str = ""
    version: str = ""
    dependencies: list[Declaration] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)
    entries: list[str] = field(default_factory=list)


Reader = Callable[[str], Declared]
"""A pure function of a manifest's text. It raises `Unreadable`, `LockFile` and nothing else, on whatever text."""
