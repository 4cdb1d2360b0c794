"""Searches for the daemon: off its event loop, and never longer than they are allowed to take.

Nearly every pattern is linear under RE2 and runs in a thread, without the interpreter lock.  The rest,
patterns that must backtrack (look-around and back-references with open repeats) or whose automata are huge,
run in a process that is killed when it overruns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.abc
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from rlm_contexts.errors import ScanTimeout, SearchDied
from rlm_contexts.search.scan import ScanResult, scan
from rlm_contexts.search.search_process import LENGTH, READY, SearchJob, outcome, pack
from rlm_contexts.search.strategy import Syntax, plan_for
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText
from rlm_ipc.environment import HELPER, chosen
from rlm_ipc.messages import Json

_HEAVY = 10_000  # RE2 instructions from which on a search may be too slow to be left in a thread
_START = 30.0  # seconds a process may take to start: on a busy machine that is more than many a search may take
_GRACE = 1.0  # seconds a process may take beyond the search's own limit, to answer


class ScanWorkers:
    """Searches stored texts, for any number of tasks at once.  An async context manager."""

    def __init__(self, store: ContextStore, *, processes: int = 2) -> None:
        """Args: the store; how many processes for backtracking searches at most, each started when needed."""
        self._store = store
        self._idle: list[_Worker] = []
        self._slots = anyio.Semaphore(processes)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def scan(self, stored: StoredText, pattern: str, *, seconds: float = 10.0, **arguments: Any) -> ScanResult:
        """Search a stored text.

        Arguments and errors as of `scan.scan`; also UnknownText, CorruptText, and SearchDied when the process
        did.
        """
        arguments |= {"pattern": pattern, "seconds": seconds}
        in_process = await anyio.to_thread.run_sync(_needs_process, stored, pattern, _syntax(arguments))
        if in_process:
            return await self._in_process(stored, arguments)
        search = functools.partial(self._in_thread, stored, arguments)
        return await anyio.to_thread.run_sync(search, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """End the processes."""
        while self._idle:
            await self._idle.pop().kill()

    def _in_thread(self, stored: StoredText, arguments: dict[str, Json]) -> ScanResult:
        return scan(self._store.open(stored), **arguments)

    async def _in_process(self, stored: StoredText, arguments: dict[str, Json]) -> ScanResult:
        job = SearchJob(str(self._store.root), stored, arguments)
        seconds = arguments["seconds"] + arguments.get("count_seconds", 0.0)
        async with self._slots:
            worker = await self._worker()
            try:
                with anyio.fail_after(_START):
                    await worker.started()
                with anyio.fail_after(seconds + _GRACE):
                    reply = await worker.ask(job)
            except TimeoutError:
                await worker.kill()
                raise ScanTimeout(arguments["seconds"]) from None
            except BaseException:  # died, or the caller gave up: it may still be searching
                await worker.kill()
                raise
            self._idle.append(worker)
        return outcome(reply)

    async def _worker(self) -> _Worker:
        if not self._idle:
            with anyio.CancelScope(shield=True):  # a process whose start is cancelled would belong to nobody
                self._idle.append(await _Worker.start())
        return self._idle.pop()


def _syntax(arguments: dict[str, Json]) -> Syntax:
    return Syntax(*(bool(arguments.get(field.name)) for field in fields(Syntax)))


def _needs_process(stored: StoredText, pattern: str, syntax: Syntax) -> bool:
    plan = plan_for(pattern, stored.ascii, stored.crlf, syntax)
    return plan.backtracks or plan.weight > _HEAVY


class _Worker:
    """One process, asked one thing at a time."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._stdin = process, process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)
        self._started = False

    @classmethod
    async def start(cls) -> _Worker:
        """Start a process; -P keeps it from importing what lies in the working directory."""
        command = [sys.executable, "-P", "-m", "rlm_contexts.search.search_process"]
        return cls(await anyio.open_process(command, stderr=None, env=chosen(HELPER)))

    async def started(self) -> None:
        """Wait until it can be asked.  Raises: SearchDied."""
        if not self._started:
            with _alive():
                await self._stdout.receive_exactly(len(READY))
            self._started = True

    async def ask(self, job: SearchJob) -> bytes:
        """Return the answer, which `outcome` reads.  Raises: SearchDied."""
        with _alive():
            await self._stdin.send(pack(job))
            (length,) = LENGTH.unpack(await self._stdout.receive_exactly(LENGTH.size))
            return await self._stdout.receive_exactly(length)

    async def kill(self) -> None:
        """End the process, whatever it is doing, and reap it."""
        with anyio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.aclose()


@contextmanager
def _alive() -> Iterator[None]:
    """Say in words that the process has ended under a question."""
    try:
        yield
    except (anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError) as problem:
        raise SearchDied("the search process died; search again, or use a simpler pattern") from problem
