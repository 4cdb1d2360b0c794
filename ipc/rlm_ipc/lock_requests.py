"""What a person or a program may ask of the daemon about a project's lock, without a session."""

from __future__ import annotations

from dataclasses import field

from rlm_ipc.daemon_requests import Request
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json


@dataclass(frozen=True, slots=True)
class ShowLock(Request["LockShown"]):
    """Show the lock of the project that contains a folder.

    Attributes:
        folder: any folder of the project.
        seconds: how long a new version may take; unfinished work continues after that.
        refresh: look at all files, however recent the last look is.
        sections: names of the wanted sections.
        tokens: length of the wanted map; 0: no map.
        focus, about, path: what the map is for; see the tool `lock`.
        since: compare this version with the newest; 0: none.
        write: write the folder `.memory` too.
    """

    folder: str
    seconds: float = 1.0
    refresh: bool = False
    sections: tuple[str, ...] = ()
    tokens: int = 0
    focus: tuple[str, ...] = ()
    about: str = ""
    path: str = ""
    since: int = 0
    write: bool = False


@dataclass(frozen=True, slots=True)
class LockShown:
    """A lock: its version, and the requested parts.

    ``phase`` is what the scanner is still doing, with ``done`` of ``total`` files; ``ready``: nothing. ``changed`` are
    files that are not in the version yet. ``difference`` has the form of the tool's answers.
    """

    root: str
    version: int
    tree: str
    created: float
    files: int
    untracked: int
    is_hit: bool
    is_stale: bool
    changed: tuple[str, ...]
    missing: tuple[str, ...]
    phase: str
    done: int = 0
    total: int = 0
    sections: dict[str, Json] = field(default_factory=dict)
    map: str = ""
    difference: Json = None
    written: tuple[str, ...] = ()
