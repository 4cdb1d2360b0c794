"""How far a load has come, for watchers in another thread.

The data is being written to a file, so its size shows the progress; nothing is counted while bytes flow.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event


@dataclass(slots=True)
class Meter:
    """Bytes of a load.

    Attributes: done, as last seen; total, if it is known; stop, set when nobody waits for the load any more.
    """

    done: int = 0
    total: int | None = None
    stop: Event = field(default_factory=Event)
    _draft: Path | None = None

    def look(self) -> int:
        """Return the bytes written so far."""
        if self._draft is not None:
            try:
                self.done = os.stat(self._draft).st_size
            except OSError:  # it is published, or given up
                self._draft = None
        return self.done

    def begin(self, draft: Path, total: int | None) -> None:
        """Watch another file from now on."""
        self._draft, self.total = draft, total


watched: ContextVar[Meter | None] = ContextVar("watched", default=None)
"""The meter of the load that this task or thread does, if someone watches it."""


def follow(draft: str, total: int | None = None) -> None:
    """Tell watchers which file grows now, and how large it will be, if that is known."""
    meter = watched.get()
    if meter is not None:
        meter.begin(Path(draft), total)


def stopped() -> bool:
    """Return whether nobody waits for this load any more."""
    meter = watched.get()
    return meter is not None and meter.stop.is_set()
