"""Parse helpers: helper processes that are reused for many files. One that hangs or dies costs only its file."""

from __future__ import annotations

import os
import signal
import threading
from base64 import b64decode
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from rlm_contexts.errors import ContextError, HelperDied, HelperTimeout
from rlm_contexts.helpers.job import Helper, Job, JobLimits
from rlm_contexts.helpers.protocol import FileParsed, ParseFiles
from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.extraction.packing import to_bytes
from rlm_lock.model import Extract, FileNote
from rlm_lock.parsing.job import wasted
from rlm_lock.store import ParsedFile

SECONDS_A_FILE = 5.0
"""Processor time after which the system ends a helper that one file is holding up."""
SECONDS_LOST = 40.0
"""Processor time that slow files may waste in total; after that files are only hashed."""
_SECONDS_OF_CRASH = 1.0
_TOGETHER = 24
_MEMORY = 1 << 30
_START_SECONDS = 120.0
_BATCH_SECONDS = 900.0
"""The backstop for files that use no processor time and do not end either, on a busy machine."""
_MOST_ANSWER = 64 << 20
_LONGEST_EXTRACT = 1 << 20
_IDLE_SECONDS = 60.0
_NICE = 10


@dataclass(frozen=True, slots=True)
class FileToParse:
    """A file, with its expected content and key."""

    path: bytes
    blob: bytes
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for a file: its extract; without one it has changed meanwhile, or the time was up (``is_late``)."""

    file: FileToParse
    parsed: ParsedFile | None = None
    is_late: bool = False


def worker_count() -> int:
    """Return how many helpers may work at once: one processor is left for everything else."""
    return max(1, len(os.sched_getaffinity(0)) - 1)


class ParsePool:
    """Hands files to helpers and collects their replies.

    Each helper belongs to a thread that starts it and talks to it; the threads start when there is work.

    Attributes:
        lost: processor time that slow files have wasted.
        refusal: why no helper can be started here; empty if one can.
    """

    def __init__(
        self,
        root: bytes,
        workers: int | None = None,
        *,
        seconds_a_file: float = SECONDS_A_FILE,
        seconds_lost: float = SECONDS_LOST,
    ) -> None:
        """Args: root, what helpers may read; the others as the constants with their names."""
        self._root, self._workers = root, workers or worker_count()
        self._seconds_a_file, self._seconds_lost = seconds_a_file, seconds_lost
        self._changed = threading.Condition()
        self._batches: deque[list[FileToParse]] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._suspects: set[FileToParse] = set()
        self._threads: list[threading.Thread] = []
        self._helpers: set[Helper] = set()
        self._is_closed = False
        self.left = 0
        self.lost, self.refusal = 0.0, ""

    def add(self, files: Sequence[FileToParse]) -> None:
        """Have files parsed."""
        with self._changed:
            self._batches.extend([list(files[at : at + _TOGETHER]) for at in range(0, len(files), _TOGETHER)])
            self.left += len(files)
            while len(self._threads) < min(self._workers, len(self._batches)):
                thread = threading.Thread(target=self._work, daemon=True, name=f"parse-{len(self._threads)}")
                self._threads.append(thread)
                thread.start()
            self._changed.notify_all()

    def take(self, seconds: float) -> list[Outcome]:
        """Return the results that have arrived since, waiting at most ``seconds``."""
        with self._changed:
            if not self._outcomes and self.left:
                self._changed.wait(seconds)
            found = list(self._outcomes)
            self._outcomes.clear()
            self.left -= len(found)
            return found

    def close(self) -> None:
        """End the helpers and the threads."""
        with self._changed:
            self._is_closed = True
            helpers = list(self._helpers)
            self._changed.notify_all()
        for helper in helpers:
            helper.kill()
        for thread in self._threads:
            thread.join()

    # --- in the threads ---

    def _work(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)  # of this thread, and of the processes that it starts
        helper: Helper | None = None
        try:
            while (batch := self._next(helper is not None)) is not None:
                if batch and (helper := helper or self._started()) is not None:
                    helper = self._parse(helper, batch)
                elif batch:
                    self._put([Outcome(file, is_late=True) for file in batch])
                elif helper is not None:  # idle for long
                    self._end(helper)
                    helper = None
        finally:
            if helper is not None:
                self._end(helper)

    def _next(self, has_helper: bool) -> list[FileToParse] | None:
        """Return the next batch; an empty one if there was none for long, None at the end."""
        with self._changed:
            while not self._batches and not self._is_closed:
                if not self._changed.wait(_IDLE_SECONDS if has_helper else None):
                    return []
            if self._is_closed:
                return None
            batch = self._batches.popleft()
            if self.lost < self._seconds_lost and not self.refusal:
                return batch
        self._put([Outcome(file, is_late=True) for file in batch])
        return []

    def _started(self) -> Helper | None:
        """Return a new helper that has its walls; None if there can be none."""
        request = self._request([])
        try:
            helper = Helper(Job(request, [Path(os.fsdecode(self._root))]), _MEMORY)
        except OSError as problem:
            self.refusal = f"no process can be started ({problem.strerror})"
            return None
        self._helpers.add(helper)
        try:
            with closing(helper.ask(request, JobLimits(_START_SECONDS, _MEMORY, _MOST_ANSWER))) as replies:
                list(replies)
        except ContextError as problem:
            self._end(helper)
            self.refusal = str(problem)
            return None
        return helper

    def _request(self, files: list[FileToParse]) -> ParseFiles:
        names = tuple(file.path.decode("utf-8", "surrogateescape") for file in files)
        left = max(0.1, (self._seconds_lost - self.lost) / self._workers)
        return ParseFiles(self._root.decode("utf-8", "surrogateescape"), names, left, self._seconds_a_file)

    def _parse(self, helper: Helper, batch: list[FileToParse]) -> Helper | None:
        """Have a batch parsed. Return the helper if it can be used further."""
        done = 0
        limits = JobLimits(_BATCH_SECONDS, _MEMORY, _MOST_ANSWER)
        try:
            with closing(helper.ask(self._request(batch), limits)) as replies:
                for reply in replies:
                    if done == len(batch):
                        raise HelperDied("said too much")
                    self._reply(batch[done], reply)
                    done += 1
            if not done:
                raise HelperDied("said nothing")
        except ContextError as problem:
            is_slow = isinstance(problem, HelperTimeout) or helper.signal == signal.SIGPROF
            self._end(helper)
            if not self._is_closed and done < len(batch):
                self._blame(batch[done], is_slow=is_slow)
                self._again(batch[done + 1 :])
            return None
        self._again(batch[done:])
        return helper

    def _reply(self, file: FileToParse, reply: FileParsed) -> None:
        with self._changed:
            self.lost += wasted(reply.seconds, file.size)
        # Its statements about another content are not trusted: they would be kept for files with that content.
        if reply.blob != file.blob.hex() or len(reply.extract) > _LONGEST_EXTRACT:
            self._put([Outcome(file)])
            return
        try:
            note, extract = FileNote(reply.note), b64decode(reply.extract, validate=True)
        except ValueError as problem:
            raise HelperDied("gave a malformed answer") from problem
        self._put([Outcome(file, ParsedFile(file.blob, file.key, note.value, extract))])

    def _blame(self, file: FileToParse, *, is_slow: bool) -> None:
        """Give up a file at which a helper ended; if nobody knows why, try it once more, alone."""
        with self._changed:
            self.lost += self._seconds_a_file if is_slow else _SECONDS_OF_CRASH
            if not is_slow and file not in self._suspects:
                self._suspects.add(file)
                self._batches.append([file])
                self._changed.notify()
                return
        note = "its parser was too slow" if is_slow else "its parser crashed"
        extract = to_bytes(Extract(note=note))
        self._put([Outcome(file, ParsedFile(file.blob, file.key, FileNote.NOT_PARSED.value, extract))])

    def _again(self, files: list[FileToParse]) -> None:
        if files:
            with self._changed:
                self._batches.appendleft(files)
                self._changed.notify()

    def _put(self, outcomes: list[Outcome]) -> None:
        with self._changed:
            self._outcomes.extend(outcomes)
            self._changed.notify_all()

    def _end(self, helper: Helper) -> None:
        with self._changed:
            self._helpers.discard(helper)
        helper.close()
