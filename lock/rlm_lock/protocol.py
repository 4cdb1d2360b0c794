"""What the daemon asks a scanner, and its answers: one scanner process for each project in use.

The daemon starts `python -m rlm_lock.scanner` with one `ScannerSpec` on a line, then writes one `Question` per line.
Each is answered, in order, by any number of `Progress` and then by one answer of the question's own type or by a
`Refused`, each in an `AnswerLine`. A scanner reads a hostile tree, so the daemon reads its lines strictly.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Generic, TypeVar

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json
from rlm_lock.model import FileChange

Answer = TypeVar("Answer")


class Question(Generic[Answer]):
    """Base of the questions; ``Answer`` is the type of the last line of an answer (`messages.reply_type`)."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ScannerSpec:
    """The project, and the place of its store.

    Attributes:
        root: the top of the working tree (or of a folder without git), with surrogate escapes.
        store: the folder of the parse cache and the versions; all worktrees of one repository share it.
        idle_seconds: how long an unused scanner stays.
    """

    root: str
    store: str
    idle_seconds: float = 600.0


class Phase(enum.StrEnum):
    """What a scan is doing."""

    LISTING = "listing"
    PARSING = "parsing"
    INDEXING = "indexing"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a scan is: ``done`` files of ``total`` in this phase."""

    phase: Phase
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Refresh(Question["Refreshed"]):
    """Bring the snapshot up to date with the disk.

    Attributes:
        seconds: how long the answer may take. Unfinished work continues in the background.
        changed: paths that are known to have changed, from hooks and pops; empty: look at all files.
        is_first: someone waits for the first answer: do not wait for parsing that takes longer anyway.
    """

    seconds: float
    changed: tuple[str, ...] = ()
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The present state.

    Attributes:
        version: a counter of this project's versions, from 1.
        tree: the hash over path, mode and blob of every file: the same on every clone.
        is_new: whether this question created the version.
        is_stale: whether files changed that are not in the version yet; ``changed`` names up to twenty of them.
        files: how many git lists (or the walk found); ``untracked``: those that git neither tracks nor ignores.
        missing: what is not there yet, or was left out, each as a sentence for the reader.
        phase: what is still being done in the background.
    """

    version: int
    tree: str
    created: float
    is_new: bool
    is_stale: bool
    changed: tuple[str, ...]
    files: int
    untracked: int
    missing: tuple[str, ...]
    phase: Phase


class Section(enum.StrEnum):
    """The parts of a snapshot; each is a context ``lock_NAME``."""

    PROJECT = "project"
    KEYFILES = "keyfiles"
    RULES = "rules"
    HISTORY = "history"
    MAP = "map"


@dataclass(frozen=True, slots=True)
class ReadSection(Question["SectionRead"]):
    """Read one section of a version.

    Attributes:
        section: which one.
        version: 0 is the newest.
        path: a folder; only what is below it, where that makes sense.
        rules: the active set of rules: full, safe, light or fast.
    """

    section: Section
    version: int = 0
    path: str = ""
    rules: str = "full"
    severe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SectionRead:
    """A section: a JSON object, as docs/lock.md shows it; for the map ``text``."""

    version: int
    content: dict[str, Json] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True, slots=True)
class ShowMap(Question["MapShown"]):
    """Show which files matter.

    Attributes:
        tokens: what the text may take, estimated.
        focus: paths that the reader works on.
        about: the question, in words.
        path: a folder to which the map is narrowed.
    """

    tokens: int
    focus: tuple[str, ...] = ()
    about: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class MapShown:
    """A map, and how many of how many files it names; ``unknown`` are paths of the focus that the project lacks."""

    version: int
    text: str
    shown: int
    files: int
    unknown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareVersions(Question["Difference"]):
    """Return what changed from one version to another (0 is the newest).

    ``seconds`` is how long to wait for the definitions of files that are still to be parsed; ``path`` is a folder to
    which the answer is narrowed.
    """

    before: int
    after: int = 0
    seconds: float = 0.0
    path: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed: up to a thousand of ``count`` files. ``before`` is 0 if that version is forgotten."""

    before: int
    after: int
    count: int
    changes: tuple[FileChange, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a question has no answer, and what to do."""

    message: str
    advice: str


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """One line to a scanner: the name of the question, and its fields."""

    kind: str
    question: dict[str, Json]


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One line from a scanner: exactly one of the fields is set."""

    progress: Progress | None = None
    answer: dict[str, Json] | None = None
    refused: Refused | None = None


QUESTIONS: Mapping[str, type[Question[Any]]] = {
    "refresh": Refresh,
    "section": ReadSection,
    "map": ShowMap,
    "compare": CompareVersions,
}
"""Every question by its name."""

_NAMES = {question: name for name, question in QUESTIONS.items()}


def kind_of(question: Question[Any]) -> str:
    """Return the name of a question's type."""
    return _NAMES[type(question)]
