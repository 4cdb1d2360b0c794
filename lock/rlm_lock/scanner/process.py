"""The scanner's main loop: questions first, and between them the remaining work."""

from __future__ import annotations

import gc
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from rlm_ipc.errors import ProtocolError
from rlm_ipc.messages import plain, read
from rlm_lock.protocol import (
    QUESTIONS,
    AnswerLine,
    CompareVersions,
    Difference,
    MapShown,
    Phase,
    Progress,
    Question,
    QuestionLine,
    ReadSection,
    Refresh,
    Refreshed,
    Refused,
    ScannerSpec,
    SectionRead,
    ShowMap,
)
from rlm_lock.scanner.compare import compare
from rlm_lock.scanner.extracts import Extracts
from rlm_lock.scanner.indexing import Indexing
from rlm_lock.scanner.lines import DaemonGone, Lines
from rlm_lock.scanner.project import Project, ProjectGone
from rlm_lock.scanner.sections import Sections
from rlm_lock.sections.view import folder_below
from rlm_lock.store import Store

_PROGRESS_SECONDS = 0.2
_FILES_A_SECOND = 300
"""Files parsed per second on an ordinary machine."""


class _CannotAnswer(Exception):
    """Why a question has no answer, and what to do."""

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.refused = Refused(message, advice)


class Scanner:
    """Keeps a project's snapshot, and answers questions until nobody asks any more."""

    def __init__(self, spec: ScannerSpec, lines: Lines) -> None:
        """Args: the daemon's specification, and the connection to it."""
        self._spec, self._lines = spec, lines
        root = spec.root.encode("utf-8", "surrogateescape")
        self._store = Store(Path(spec.store), root)
        self._project = Project(root, self._store)
        self._extracts = Extracts(self._project)
        self._indexing = Indexing(self._project, Path(spec.store), self._extracts)
        self._look: Iterator[Progress] | None = None
        self._fill: Iterator[Progress] | None = None
        self._wants_look = False
        self._begun = 0
        """How many looks have started."""
        self._changed: set[bytes] = set()
        self._has_filled = False
        self._progress = Progress(Phase.READY, 0, 0)
        self._sections = Sections(self._project, self._extracts, self._indexing)
        self._answers: Mapping[type[Question[Any]], Callable[[Any], object]] = {
            Refresh: self._refresh,
            CompareVersions: self._compare,
            ReadSection: self._section,
            ShowMap: self._map,
        }

    def run(self) -> None:
        """Answer until the daemon has gone, or has asked nothing for long."""
        idle_since = time.monotonic()
        while True:
            left = 0.0 if self._is_busy else idle_since + self._spec.idle_seconds - time.monotonic()
            line = self._lines.next(left)
            if line is not None:
                self._answer(line)
                idle_since = time.monotonic()
            elif self._is_busy:
                self._work()
            else:
                return

    def close(self) -> None:
        """End the processes, keep their results, and close the store."""
        self._indexing.close()
        with suppress(sqlite3.Error):
            self._extracts.close()
        self._store.close()

    @property
    def _is_busy(self) -> bool:
        return self._is_looking or self._fill is not None

    @property
    def _is_looking(self) -> bool:
        return self._look is not None or self._wants_look

    @property
    def _is_parsing(self) -> bool:
        """Whether files may still be parsed before the index is made."""
        return self._is_looking or (self._fill is not None and self._progress.phase is not Phase.INDEXING)

    def _work(self) -> None:
        """Do one step of the background work."""
        try:
            self._step()
        except (ProjectGone, OSError, sqlite3.Error):
            self._look, self._wants_look = None, False  # the next question meets it too, and reports it
            self._fill = None

    def _step(self) -> bool:
        """Do one step. Return False if nothing is left to do."""
        if self._look is None and self._wants_look:
            self._look, self._wants_look = self._project.look(), False
            self._begun += 1
        if self._look is not None:
            try:
                self._progress = next(self._look)
            except StopIteration:
                self._look = None
                self._begin_to_fill()
            except BaseException:
                self._look = None
                raise
        elif self._fill is not None:
            try:
                self._progress = next(self._fill)
            except StopIteration:
                self._fill = None
            except BaseException:
                self._fill = None
                raise
        else:
            self._progress = Progress(Phase.READY, 0, 0)
            return False
        return True

    def _begin_to_fill(self) -> None:
        """Parse and index, after a look, what it found, besides the earlier work."""
        project = self._project
        is_first = not self._has_filled and self._fill is None
        has_commits = project.listing is not None and project.listing.head not in ("", project.history.head)
        self._changed |= project.touched
        if project.touched or is_first or has_commits:
            self._fill, self._progress = self._filled(), Progress(Phase.PARSING, 0, 0)
        project.touched.clear()

    def _filled(self) -> Iterator[Progress]:
        yield from self._extracts.work(self._changed)
        yield from self._project.read_history()
        yield from self._indexing.work(self._changed)
        self._changed.clear()
        self._has_filled = True
        self._store.sweep()
        _tidy()

    def _answer(self, line: bytes) -> None:
        try:
            request = read(QuestionLine, json.loads(line))
            kind = QUESTIONS.get(request.kind)
            if kind is None:
                raise _CannotAnswer(f"there is no question {request.kind[:50]!r}", "restart the daemon")
            question = read(kind, request.question)
            answer = self._answers[type(question)](question)
        except _CannotAnswer as problem:
            self._lines.say(AnswerLine(refused=problem.refused))
        except ProjectGone as problem:
            self._lines.say(AnswerLine(refused=Refused(str(problem), "give the path of a project that is there")))
        except (ProtocolError, ValueError, KeyError, RecursionError) as problem:
            self._lines.say(AnswerLine(refused=Refused(f"not a question: {problem}"[:500], "restart the daemon")))
        except (OSError, sqlite3.Error) as problem:
            advice = f"see whether there is room in {self._spec.store}, then ask again"
            self._lines.say(AnswerLine(refused=Refused(f"the snapshot cannot be made ({problem})"[:500], advice)))
        else:
            self._lines.say(AnswerLine(answer=plain(answer)))

    # --- refresh ---

    def _refresh(self, question: Refresh) -> Refreshed:
        until = time.monotonic() + question.seconds
        before, begun = self._project.version, self._begun
        is_wanted = partial(self._is_near, until) if question.is_first else _always
        self._drive(until, lambda: self._is_looking)
        if self._is_looking:
            self._wants_look |= self._begun == begun  # the look in progress may have passed what has changed since
        elif self._begun != begun:  # the wanted look has started since, and has seen everything
            self._drive(until, is_wanted)
        else:
            self._begun += 1
            self._look = self._project.look([path.encode("utf-8", "surrogateescape") for path in question.changed])
            self._drive(until, is_wanted)
        return self._refreshed(is_new=self._project.version != before)

    def _is_near(self, until: float) -> bool:
        """Return whether the rest may be done by then; the version itself is waited for."""
        return self._is_looking or len(self._extracts.wanted) <= _FILES_A_SECOND * (until - time.monotonic())

    def _drive(self, until: float, is_wanted: Callable[[], bool]) -> None:
        """Work while that is wanted, until that time, and report the progress."""
        told = time.monotonic()
        while is_wanted() and self._step():
            now = time.monotonic()
            if now > until:
                return
            if now - told > _PROGRESS_SECONDS:
                self._lines.say(AnswerLine(progress=self._progress))
                told = now

    def _refreshed(self, *, is_new: bool) -> Refreshed:
        project = self._project
        version = project.version
        changed = project.changed_names() if version is not None else ()
        return Refreshed(
            version=0 if version is None else version.number,
            tree="" if version is None else version.tree,
            created=0.0 if version is None else version.created,
            is_new=is_new,
            is_stale=version is not None and self._is_looking,
            changed=changed,
            files=project.files,
            untracked=project.untracked,
            missing=self._missing(),
            phase=self._progress.phase,
        )

    def _missing(self) -> tuple[str, ...]:
        listing = self._project.listing
        said = list(() if listing is None else listing.missing)
        if self._look is not None:
            said.append(f"{len(self._project.waiting):,} files are still to be read")
        if self._extracts.wanted and not self._extracts.refusal:
            most = "up to " if self._extracts.unseen else ""
            said.append(f"{most}{len(self._extracts.wanted) + self._extracts.unseen:,} files are not parsed yet")
        if self._extracts.refusal:
            said.append(f"no file is parsed: {self._extracts.refusal}")
        elif self._extracts.late:
            said.append(f"{self._extracts.late:,} files are hashed only: others have used up the time for parsing")
        if self._indexing.index is None and not self._is_empty:
            said.append("there is no map yet")
        return tuple(said)

    @property
    def _is_empty(self) -> bool:
        """Whether the scan has ended and found no file."""
        return not (self._is_busy or self._project.files or self._project.untracked)

    # --- sections ---

    def _section(self, question: ReadSection) -> SectionRead:
        return self._sections.read(question, is_settled=not self._is_busy)

    def _map(self, question: ShowMap) -> MapShown:
        found, version = self._indexing.map, self._project.version
        if self._is_empty:
            raise _CannotAnswer("there is no map, as the project has no files", "ask again when it has some")
        if found is None or version is None:
            raise _CannotAnswer("there is no map of the project yet", "ask again when it has been indexed")
        shown = found.show(question.tokens, question.focus, question.about, question.path)
        return MapShown(
            version.number,
            shown.text,
            shown.files,
            self._project.files + self._project.untracked,
            shown.unknown,
            self._missing(),
        )

    # --- differences ---

    def _compare(self, question: CompareVersions) -> Difference:
        after = self._store.version(question.after)
        if after is None:
            what = f"there is no version {question.after}" if question.after else "there is no version yet"
            raise _CannotAnswer(what, "refresh the lock, and compare with its version")
        new = self._store.table(after.number)
        old = self._store.table(question.before) if question.before else None
        if old is None or new is None:
            return Difference(0, after.number, 0, ())
        versions, below = ((question.before, old), (after.number, new)), folder_below(question.path)
        found = compare(*versions, self._extracts.names, below)
        if question.seconds and self._is_parsing and not all(change.is_parsed for change in found.changes):
            self._drive(time.monotonic() + question.seconds, lambda: self._is_parsing)
            found = compare(*versions, self._extracts.names, below)
        return found


def _always() -> bool:
    return True


def _tidy() -> None:
    """Collect garbage now, and exclude what stays from later collections, which would take longer than a map."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def serve(spec_line: bytes, lines: Lines) -> None:
    """Run the scanner that the daemon's first line describes."""
    scanner = Scanner(read(ScannerSpec, json.loads(spec_line)), lines)
    try:
        scanner.run()
    except DaemonGone:
        pass
    finally:
        scanner.close()
