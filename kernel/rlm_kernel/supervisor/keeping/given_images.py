"""Images of variables that a session was given and no copy has yet, kept for the process that takes over."""

from __future__ import annotations

import os

from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.worker_requests import Restore
from rlm_kernel.supervisor.keeping.keeping import Keeping


@dataclass(frozen=True, slots=True)
class KeptImage:
    """The note about one for a later supervisor; the keeper holds its file under ``key``."""

    key: str
    request: Restore
    cells: int


@dataclass(frozen=True, slots=True)
class GivenImage:
    """It was given as the last of ``cells``: it has changed variables like a cell, and counts like one."""

    kept: KeptImage
    keeping: Keeping

    @classmethod
    def keep(cls, keeping: Keeping, request: Restore, file: int, cells: int) -> GivenImage:
        """Keep a copy of the descriptor ``file``, here and with the keeper."""
        key = f"image/{keeping.next_serial()}"
        keeping.put(key, (file,))
        return cls(KeptImage(key, request, cells), keeping)

    @property
    def cells(self) -> int:
        """How many cells a process that has it has completed."""
        return self.kept.cells

    def file(self) -> int:
        """Return a descriptor of its file, which the caller closes."""
        return os.dup(self.keeping.entries[self.kept.key].descriptors[0])

    def drop(self) -> None:
        """Release it."""
        self.keeping.drop(self.kept.key)
