"""The projects whose locks are in use: one scanner each, which checks for changes, and is ended when idle.

A check looks at all files at most every two seconds. In between, it looks only at files that hooks have reported. All
calls during a check wait for that check.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.protocol import Phase, Progress, Question, Refresh, Refreshed, ScannerSpec
from rlm_mcp.service.background import BackgroundTasks
from rlm_mcp.service.beginnings import Beginnings
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.lock.scanner_process import Command, ScannerDied, ScannerProcess, ScannerRefused, scanner_command
from rlm_memory import locks
from rlm_memory.locks import ProjectRow
from rlm_memory.places import tree_of
from rlm_memory.store import Store

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

EVERY_SECONDS = 2.0
"""How often all files are checked, at most."""
CHECK_SECONDS = 1.0
"""How long a call waits for a new version; after that it gets the previous one, marked as stale."""
FIRST_SECONDS = 4.0
"""How long a call waits if there is no previous version."""
_GRACE_SECONDS = 60.0
"""How much longer than requested a scanner may take before it is killed."""
_IDLE_SECONDS = 300.0
_MOST_SCANNERS = 8
_MOST_CHANGED = 1000
"""The most paths reported by hooks; beyond, all files are checked."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of a check; ``is_hit``: the version is unchanged."""

    found: Refreshed
    is_hit: bool


class Project:
    """One project: the top of a working tree, or a folder without git."""

    def __init__(
        self, store: Store, spec: ScannerSpec, tree: str, make_room: Callable[[], None], begun: Callable[[str], None]
    ) -> None:
        self._store, self._spec, self._tree = store, spec, tree
        self._make_room, self._begun = make_room, begun
        self._command: Command = scanner_command
        self._process: ScannerProcess | None = None
        self._starting = asyncio.Lock()
        self._checking: asyncio.Task[Refreshed] | None = None
        self._changed: dict[str, None] = {}
        self._looked = -EVERY_SECONDS
        self.latest: Refreshed | None = None
        """What the last check has found, of this life of the scanner."""
        self.progress: Progress | None = None
        """The progress of the running scan."""
        self.used = time.monotonic()

    @property
    def root(self) -> str:
        """The folder."""
        return self._spec.root

    @property
    def is_running(self) -> bool:
        """Whether its scanner is running."""
        return self._process is not None and self._process.is_alive

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for the scanner, and it has nothing to do."""
        at_work = self.latest is not None and self.latest.phase is not Phase.READY
        return self._checking is None and not (at_work and self.is_running)

    def note_changed(self, paths: Iterable[str]) -> None:
        """Note files that have changed; the next check looks at them."""
        self._changed.update(dict.fromkeys(paths))
        if len(self._changed) > _MOST_CHANGED:
            self._changed.clear()
            self._looked = -EVERY_SECONDS

    async def check(self, *, seconds: float | None = None, at_once: bool = False) -> Checked:
        """Check for changes, and return the current version.

        ``seconds`` is how long a new version may take; ``at_once`` checks all files, however recent the last check is.

        Raises:
            ToolFault: the scanner refuses, or dies again and again.
        """
        self.used = time.monotonic()
        if self._checking is None:
            age = self.used - self._looked
            if self.latest is not None and not at_once and not self._changed and age < EVERY_SECONDS:
                return Checked(self.latest, is_hit=True)
            before = self.latest
            self._checking = asyncio.create_task(self._check(seconds, everything=at_once or age >= EVERY_SECONDS))
        else:
            before = self.latest
        found = await asyncio.shield(self._checking)  # a cancelled caller does not stop the check for others
        same = before is not None and before.version == found.version
        return Checked(found, is_hit=same or not found.is_new)

    async def ask(self, question: Question[Answer], seconds: float = 0.0) -> Answer:
        """Ask the scanner, or a new one if it dies.

        Raises:
            ToolFault: it has no answer, or died twice.
        """
        self.used = time.monotonic()
        try:
            return await asyncio.shield(asyncio.create_task(self._ask(question, seconds + _GRACE_SECONDS)))
        except ScannerRefused as refused:
            raise ToolFault("lock_refused", str(refused), refused.advice) from refused
        except ScannerDied as died:
            log.warning("the scanner of a project has died", extra={"reason": str(died)})
            hint = "call again; if it fails again, see `rlm-kernel doctor` and the daemon's log"
            raise ToolFault("scanner_died", f"the process that scans the project has died: {died}", hint) from died

    async def leave(self) -> None:
        """End the process; the next question starts another."""
        process, self._process = self._process, None
        self.latest = self.progress = None
        if process is not None:
            await process.leave()

    def kill(self) -> None:
        """End the process at once."""
        if self._checking is not None:
            self._checking.cancel()
        if self._process is not None:
            self._process.kill()

    async def _check(self, seconds: float | None, *, everything: bool) -> Refreshed:
        changed, self._changed = tuple(self._changed), {}
        asked = time.monotonic()
        if seconds is None:
            seconds = FIRST_SECONDS if locks.project(self._store, self.root) is None else CHECK_SECONDS
        try:
            question = Refresh(seconds, () if everything or self.latest is None else changed, self.latest is None)
            found = await self.ask(question, seconds)
        except BaseException:
            self.note_changed(changed)
            raise
        finally:
            self._checking = None
        if everything or self.latest is None:
            self._looked = asked
        if found.is_stale:  # a scan is running: the next check gets its result
            self._looked = -EVERY_SECONDS
        self.latest = found
        self._note(found)
        return found

    def _note(self, found: Refreshed) -> None:
        row = ProjectRow(self.root, self._tree, found.version, found.tree, found.files, found.created)
        if found.version and locks.project(self._store, self.root) != row:
            locks.note_version(self._store, row)
            self._begun(self._tree)

    async def _ask(self, question: Question[Answer], seconds: float) -> Answer:
        try:
            return await (await self._alive()).ask(question, self._told, seconds)
        except ScannerDied as died:
            log.info("a scanner is replaced", extra={"reason": str(died)})
        return await (await self._alive()).ask(question, self._told, seconds)

    async def _alive(self) -> ScannerProcess:
        async with self._starting:
            if self._process is None or not self._process.is_alive:
                if self._process is not None:
                    await self._process.leave()
                self.latest = None  # the next scanner continues the numbers, but has to be asked again
                self._make_room()
                self._process = await ScannerProcess.start(self._spec, self._command)
            return self._process

    def _told(self, progress: Progress) -> None:
        self.progress = progress


class Projects:
    """All projects, by folder. ``folder`` has their stores.

    Attributes:
        beginnings: of locks, by their first version.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store, self._folder = store, folder
        self.beginnings = Beginnings()
        self._known: dict[str, Project] = {}
        self._leaving = BackgroundTasks()

    def __iter__(self) -> Iterator[Project]:
        return iter(list(self._known.values()))

    def of(self, root: str) -> Project:
        """Return the project of a folder."""
        found = self._known.get(root)
        if found is None:
            tree = tree_of(root, "")
            store = self._folder / hashlib.sha256(tree.encode("utf-8", "surrogateescape")).hexdigest()[:32]
            store.mkdir(mode=0o700, parents=True, exist_ok=True)
            spec, begun = ScannerSpec(root, str(store)), self.beginnings.begun
            found = self._known[root] = Project(self._store, spec, tree, self._make_room, begun)
        return found

    def get(self, root: str) -> Project | None:
        """Return the project of a folder if it was used since the daemon began."""
        return self._known.get(root)

    def sweep(self) -> None:
        """End scanners that were idle for minutes, and forget projects whose folders were deleted."""
        now = time.monotonic()
        for project in self:
            if now - project.used > _IDLE_SECONDS and project.is_idle:
                del self._known[project.root]
                self._end(project)
        for row in locks.projects_known(self._store):
            if row.root not in self._known and not os.path.lexists(row.root):
                locks.forget(self._store, row.root)

    async def aclose(self) -> None:
        """End all of them."""
        for project in self:
            project.kill()
        await asyncio.gather(*(project.leave() for project in self), self._leaving.wait(), return_exceptions=True)

    def _make_room(self) -> None:
        """End the least recently used one if the limit is reached."""
        running = sorted((one for one in self if one.is_running), key=lambda one: one.used)
        idle = [one for one in running if one.is_idle]
        if len(running) >= _MOST_SCANNERS and idle:
            self._end(idle[0])

    def _end(self, project: Project) -> None:
        self._leaving.start(project.leave())
