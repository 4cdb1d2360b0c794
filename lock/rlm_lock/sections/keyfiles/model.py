"""The contents of the section `keyfiles`."""

from __future__ import annotations

import enum

from rlm_ipc.late_dataclasses import dataclass


class Role(enum.StrEnum):
    """The purpose of a key file."""

    ENTRY = "entry"
    CONFIG = "config"
    API = "api"
    SCHEMA = "schema"
    CORE_LOGIC = "core-logic"
    TEST = "test"
    BUILD = "build"
    CI = "ci"
    DOCS = "docs"


@dataclass(frozen=True, slots=True)
class KeyFile:
    """One key file.

    Attributes:
        path: from the project's top.
        role: its purpose.
        last_modified: as ISO 8601 in UTC; None where it is unknown.
        size_bytes: on disk.
        imports: files of the project without their suffixes, and other modules as written.
    """

    path: str
    role: Role
    last_modified: str | None
    size_bytes: int
    imports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CriticalFiles:
    """The files that match one pattern: how many, and the first of them."""

    pattern: str
    count: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """The section `keyfiles`."""

    files: tuple[KeyFile, ...]
    critical_patterns: tuple[str, ...]
    critical_files: tuple[CriticalFiles, ...]
