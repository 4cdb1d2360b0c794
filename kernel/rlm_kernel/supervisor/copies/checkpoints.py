"""The sleeping copies of one session: what each represents, which are kept, and which cells can be undone.

This is only the bookkeeping. `kernel_processes` forks the copies, wakes them and ends them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlm_ipc.outcomes import NoCopy, Uncopied
from rlm_ipc.worker_requests import (
    Bind,
    Export,
    LookAtThreads,
    Peek,
    Request,
    Resolve,
    Save,
    Scan,
    Shadowed,
    Unbind,
    Variables,
)
from rlm_kernel.supervisor.keeping.given_images import GivenImage
from rlm_kernel.supervisor.processes.worker_link import WorkerLink

SUPERVISOR_RESTORES = (Bind, Unbind, Shadowed, LookAtThreads, Resolve, Variables, Peek, Scan, Export)
"""Requests that change nothing, or only what the supervisor restores in a fresh process."""
RUN_NO_CODE = (Bind, Unbind, Shadowed, LookAtThreads, Resolve, Variables)
"""Those among them that run no user code: a copy from before them still represents the session."""


def runs_code(request: Request[Any]) -> bool:
    """Return whether it may run user code. The first piece of an image creates the whole image."""
    return not isinstance(request, RUN_NO_CODE) and not (isinstance(request, Save) and request.at > 0)


@dataclass(slots=True)
class Checkpoint:
    """A sleeping copy, taken after ``cells`` completed cells; the live process has ``threads`` that it lacks."""

    peer: WorkerLink
    cells: int
    threads: tuple[str, ...] = ()


class Checkpoints:
    """The copies of one session, oldest first: the newest, and those that undo the last ``undoable`` cells.

    ``cells`` is how many cells the live process has completed. ``pristine`` means that it was like any fresh process
    before its first cell, and ``only_cells`` that nothing but cells has changed it since the newest copy. ``images`` of
    variables were given to it since then.
    """

    def __init__(self, undoable: int) -> None:
        self.undoable = undoable
        self.cells = 0
        self.pristine = False
        self.only_cells = False
        self.copies: list[Checkpoint] = []
        self.images: list[GivenImage] = []
        self._refused: tuple[NoCopy, str] | None = None

    @property
    def newest(self) -> Checkpoint | None:
        """The newest copy."""
        return self.copies[-1] if self.copies else None

    @property
    def untouched(self) -> bool:
        """True if the live process is still like any fresh one that the supervisor has equipped."""
        return self.pristine and self.cells == 0

    @property
    def covered(self) -> bool:
        """True if the newest copy, or a fresh process, represents everything that the session holds."""
        return self.untouched or (self.newest is not None and self.newest.cells == self.cells and self.only_cells)

    @property
    def fresh(self) -> bool:
        """True if a new copy would gain nothing."""
        return self.covered and self.newest is not None

    @property
    def uncopied(self) -> Uncopied | None:
        """What no copy represents because none could be taken; None if there is no such thing."""
        if self._refused is None or self.covered:
            return None
        return Uncopied(self.cells - (self.newest.cells if self.newest is not None else 0), *self._refused)

    def refused(self, reason: NoCopy, detail: str) -> None:
        """Record that no copy can be taken now."""
        self._refused = reason, detail

    def possible(self) -> None:
        """Record that a copy can be taken again."""
        self._refused = None

    def asked(self, request: Request[Any]) -> None:
        """Record that the live process carries out a request, which may change it in a way that no cell describes."""
        self.pristine &= isinstance(request, SUPERVISOR_RESTORES)
        self.only_cells &= not runs_code(request)

    def changed(self) -> None:
        """Record that something other than cells has changed the live process."""
        self.only_cells = False

    def add(self, peer: WorkerLink, cells: int) -> list[WorkerLink]:
        """Add a copy that was taken after ``cells`` cells. Return the copies that it makes unnecessary."""
        # A fresh process can undo the first cell just as well, and needs no memory until then.
        oldest = max(cells - self.undoable, 1 if self.pristine else 0)
        kept = [copy for copy in self.copies if oldest <= copy.cells < cells]
        replaced = [copy.peer for copy in self.copies if copy not in kept]
        self.copies = [*kept, Checkpoint(peer, cells, peer.handshake.threads)]
        self.only_cells = True
        self.possible()
        self.keep_images(after=cells)
        return replaced

    def keep_images(self, *, after: int = 0, up_to: int | None = None) -> None:
        """Keep only the images that were given after ``after`` cells, and those that are part of ``up_to`` cells."""
        if not self.images:
            return
        kept = [image for image in self.images if after < image.cells <= (self.cells if up_to is None else up_to)]
        for image in self.images:
            if image not in kept:
                image.drop()
        self.images = kept

    def resumed(self, copy: Checkpoint) -> tuple[str, ...]:
        """Make that copy the live process. Return the threads that are missing now."""
        threads, copy.threads = copy.threads, ()
        self.cells, self.only_cells = copy.cells, True
        self.possible()
        return threads

    def remove(self, peer: WorkerLink) -> None:
        """Forget a copy: it has ended, or continues as the live process."""
        self.copies = [copy for copy in self.copies if copy.peer is not peer]

    def drop_oldest(self) -> bool:
        """Give up the oldest copy that is kept only for a rollback. Return False if there is none."""
        if len(self.copies) < 2:
            return False
        self.copies.pop(0).peer.drop()
        return True

    def can_go_back(self) -> list[int]:
        """Return the numbers of cells that can be undone: those that end at a copy, or at a fresh process."""
        known = {copy.cells for copy in self.copies} | ({0} if self.pristine else set())
        return sorted(self.cells - cells for cells in known if 0 < self.cells - cells <= self.undoable)

    def taken_after(self, cells: int) -> Checkpoint | None:
        """Return the copy that was taken after that many cells."""
        return next((copy for copy in reversed(self.copies) if copy.cells == cells), None)

    def go_back(self, cells: int) -> None:
        """Record that the live process has completed only that many cells now; later copies end."""
        for copy in self.copies:
            if copy.cells > cells:
                copy.peer.drop()
        self.copies = [copy for copy in self.copies if copy.cells <= cells]
        self.cells = cells
        self.keep_images()

    def begin_anew(self) -> None:
        """Forget everything but the images: a fresh process replaces the live one and its copies."""
        self.copies, self.cells, self.only_cells = [], 0, False
        self.possible()
