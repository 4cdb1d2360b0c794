"""What a client may ask of the daemon about a queue as a whole: files of other trackers, and how the work is going."""

from __future__ import annotations

from rlm_ipc.daemon_requests import Request
from rlm_ipc.late_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImportWork(Request["WorkImported"]):
    """Import the tasks of a tracker's file into the queue of a session's repository: all of them or none."""

    session: str | None
    file: str
    tracker: str
    skip_missing: bool = False


@dataclass(frozen=True, slots=True)
class WorkImported:
    """How many tasks were added, changed or unchanged; each sentence in ``kept`` says what stayed different here."""

    added: int
    changed: int
    same: int
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExportWork(Request["WorkExported"]):
    """Write the queue of a session's repository as a tracker's file."""

    session: str | None
    tracker: str


@dataclass(frozen=True, slots=True)
class WorkExported:
    """The file."""

    text: str


@dataclass(frozen=True, slots=True)
class ShowMeasures(Request["MeasuresShown"]):
    """Show how the work in the queue of a session's repository is going."""

    session: str | None


@dataclass(frozen=True, slots=True)
class MeasuredLine:
    """One number, based on ``events`` events of that kind; None: nothing has happened yet.

    ``share`` says that it is a fraction of 1; ``met`` is None where the target is not a number.
    """

    name: str
    value: float | None
    share: bool
    target: str
    met: bool | None
    events: int
    of: str


@dataclass(frozen=True, slots=True)
class MeasuresShown:
    """The table of targets."""

    lines: tuple[MeasuredLine, ...]
