"""The files that a cell has left in its session's scratch folder, where code that writes to a relative path writes.

Without them, an agent believes that `plot.png` is in the workspace. The folder is looked at from outside, because what
a kernel says of its files would not be trusted.
"""

from __future__ import annotations

import os
import time
from itertools import islice

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.service.sessions.sessions import Session

_MOST_NAMED = 10
"""If a cell has left more files, only their folder is named."""
_MOST_ENTRIES = 2000
"""How many entries of the folder are looked at, so that a cell that makes millions of files costs no more."""
_SAME_TIME_NS = 50_000_000
"""The system sets the time of a change by a clock that stands still for some milliseconds."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was in ``folder``, and when it had changed; 0 if it may have changed again at the same time."""

    folder: str
    names: frozenset[str]
    changed_ns: int


class NewFiles:
    """The entries of each session's scratch folder that were not there before."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def begin(self, session: Session) -> None:
        """Note what is there before the first cell that this daemon runs in a session."""
        if session.key not in self._seen:
            self.look(session)

    def look(self, session: Session) -> list[str]:
        """Return the paths of files and folders that are new since the last look, sorted; hidden ones do not count.

        At the first look nothing is new. If the session has no kernel then, everything will be.
        """
        info, seen = session.kernel.info, self._seen.get(session.key)
        if info is None:
            self._seen.setdefault(session.key, _Seen("", frozenset(), 0))
            return []
        folder = info.scratch
        try:
            changed = os.stat(folder).st_mtime_ns
            if seen is not None and (seen.folder, seen.changed_ns) == (folder, changed):
                return []
            with os.scandir(folder) as entries:
                names = frozenset(entry.name for entry in islice(entries, _MOST_ENTRIES) if entry.name[0] != ".")
        except OSError:
            return []  # it was removed with its session
        settled = changed if time.time_ns() - changed > _SAME_TIME_NS else 0
        self._seen[session.key] = _Seen(folder, names, settled)
        if seen is None:
            return []
        new = names - seen.names if seen.folder == folder else names
        return sorted(os.path.join(folder, name) for name in new) if len(new) <= _MOST_NAMED else [f"{folder}/"]

    def drop(self, session: int) -> None:
        """Forget a session."""
        self._seen.pop(session, None)
