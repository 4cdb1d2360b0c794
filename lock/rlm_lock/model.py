"""What a snapshot knows about each file, and how two snapshots differ."""

from __future__ import annotations

import enum

from rlm_ipc.late_dataclasses import dataclass


class FileNote(enum.StrEnum):
    """Why nothing, or not everything, is known about a file's content."""

    NONE = ""
    LINK = "link"
    SPECIAL = "special"
    SUBMODULE = "submodule"
    UNREADABLE = "unreadable"
    LARGE = "large"
    """Longer than what is read for hashing: known by its size and time."""
    SECRET = "secret"
    """Its name says that it holds secrets: it is not opened."""
    SECRET_TEXT = "secret text"
    """Its text holds a key or token: the names of its definitions are kept, its text and words are not."""
    NOT_PARSED = "not parsed"
    """Hashed only: too long, too deep, or its parser was too slow; or the time for parsing was used up."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a project, as a scan found it.

    Attributes:
        path: relative to the project's root, as bytes of the file system.
        size: in bytes.
        is_tracked: whether git lists it; a walk without git says so of every file.
    """

    path: bytes
    size: int
    is_tracked: bool


@dataclass(frozen=True, slots=True)
class Definition:
    """A name that a file defines: its kind, and the line, from 1."""

    name: str
    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class Extract:
    """What is kept of one file's text: a pure function of its name's suffix and its content.

    Attributes:
        definitions: in the order of the file.
        imports: modules as the language writes them, with ``/`` between the parts; a leading ``.`` is relative.
        words: see `rlm_lock.extraction.words`: which words the file has, how often each, which are in its first lines.
        note: why there are no definitions.
    """

    definitions: tuple[Definition, ...] = ()
    imports: tuple[str, ...] = ()
    words: bytes = b""
    note: str = ""


class Change(enum.StrEnum):
    """What happened to a file between two versions."""

    ADDED = "added"
    MODIFIED = "modified"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that differs between two versions.

    Attributes:
        path: as it is shown, see `rlm_lock.names.shown`.
        change: what happened to it.
        added, removed: names of definitions that only the newer, or only the older version has.
        is_parsed: False if the definitions are not known (yet), so that none are listed.
    """

    path: str
    change: Change
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    is_parsed: bool = True
