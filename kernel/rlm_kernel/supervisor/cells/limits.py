"""Limits that a kernel cannot be trusted to keep: time and memory, enforced from outside.

A cell that runs too long is interrupted at the limit, again several times a second during the grace period, and then
killed. There are many interrupts because a bare ``except`` in a loop swallows one. The kill comes last because only it
loses the process. It is needed because CPython delivers a signal between two bytecodes: a long call into C never
notices an interrupt.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from rlm_ipc.outcomes import Ended

if TYPE_CHECKING:
    from rlm_kernel.supervisor.processes.worker_link import WorkerLink

PAGE = os.sysconf("SC_PAGE_SIZE")
REPEAT_SECONDS = 0.15
UNHEARD_SECONDS = 0.005
"""A kernel that has not started its cell yet ignores interrupts; it is interrupted again after this time."""


class Clock:
    """The time limit of a request. It is paused while the kernel waits for a person or a model.

    While paused it keeps no reference to its callback, which may refer to the clock in turn.
    """

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = seconds
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def run(self, on_limit: Callable[[], None]) -> None:
        """Start or resume the clock, and call ``on_limit`` when the time is up."""
        if self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(self._left, on_limit)

    def pause(self) -> None:
        """Pause it; `run` continues with the remaining time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left = max(0.0, self._left - (self._loop.time() - self._since))


class Escalation:
    """Interrupts a kernel until its cell ends, and kills it when the grace period is over."""

    def __init__(self, live: WorkerLink, grace_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._live = live
        self._deadline = self._loop.time() + grace_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._step()

    def _step(self) -> None:
        if self._loop.time() >= self._deadline:
            self._timer = None
            self._live.kill()
            return
        wait = REPEAT_SECONDS if self._live.interrupt() else UNHEARD_SECONDS
        wait = min(wait, self._deadline - self._loop.time())
        self._timer = self._loop.call_later(max(0.0, wait), self._step)

    def cancel(self) -> None:
        """Stop: the cell has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class CellLimits:
    """The limits of the request in flight: its clock, and the escalation once it has to end.

    ``ended`` says what ended it (None: nothing yet), and ``reason`` explains why. ``what`` names the request in that
    text. ``of`` is the full limit; ``seconds`` is what is left of it (default: all).
    """

    def __init__(
        self, live: WorkerLink, seconds: float, grace_seconds: float, what: str = "the cell", *, of: float | None = None
    ) -> None:
        self.ended: Ended | None = None
        self.reason = ""
        self._what = what
        self._live, self._seconds, self._grace = live, of or seconds, grace_seconds
        self._clock = Clock(seconds)
        self._clock.run(self._time_is_up)
        self._escalation: Escalation | None = None
        self._unheard: asyncio.TimerHandle | None = None

    def _time_is_up(self) -> None:
        if self._live.held_up:
            left = "a task or finaliser of an earlier cell"
            never = f"{self._what} never began; run it again"
            self.blame(Ended.WORKER_DIED, f"{left} kept the kernel busy for {self._seconds:g} s, so {never}")
            self._live.kill()
        else:
            self.stop(Ended.TIME_LIMIT, f"{self._what} was stopped at its limit of {self._seconds:g} s")

    def stop(self, ended: Ended, reason: str) -> None:
        """End the request. The first reason counts."""
        if self._escalation is None:
            self.blame(ended, reason)
            self._escalation = Escalation(self._live, self._grace)

    def interrupt(self) -> None:
        """Interrupt the kernel once, as soon as it listens to interrupts."""
        self._calm()
        if not self._live.interrupt():
            self._unheard = asyncio.get_running_loop().call_later(UNHEARD_SECONDS, self.interrupt)

    def _calm(self) -> None:
        if self._unheard is not None:
            self._unheard.cancel()
            self._unheard = None

    def blame(self, ended: Ended, reason: str) -> None:
        """Record why the request ends, unless a reason is recorded already."""
        if self.ended is None:
            self.ended, self.reason = ended, reason

    def wait_for_input(self) -> None:
        """Stop the clock: the kernel waits for a person or a model."""
        self._clock.pause()

    def input_came(self) -> None:
        """Start the clock again."""
        if self._escalation is None:
            self._clock.run(self._time_is_up)

    def end(self) -> None:
        """Stop all limits: the request has ended."""
        self._clock.pause()
        self._calm()
        if self._escalation is not None:
            self._escalation.cancel()


def private_memory(pid: int) -> int:
    """Return the bytes of anonymous resident memory of a process, 0 if it is gone.

    Shared mapped contexts do not count.
    """
    resident, shared = _resident_and_shared(pid)
    return resident - shared


def resident_memory(pid: int) -> int:
    """Return the bytes of resident memory of a process, shared pages included; 0 if it is gone."""
    return _resident_and_shared(pid)[0]


def _resident_and_shared(pid: int) -> tuple[int, int]:
    # The cheapest file in /proc that has them (proc_pid_statm(5)).
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as statm:
        fields = statm.read().split()
        return int(fields[1]) * PAGE, int(fields[2]) * PAGE
    return 0, 0


def proportional_memory(pid: int) -> int:
    """Return a process's bytes of anonymous memory, each page divided by the number of its sharers; 0 if gone.

    The sum over a process and its copies is what they use together. The system walks the page tables for it, which
    takes milliseconds for a large process.
    """
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
        for line in rollup:
            if line.startswith(b"Pss_Anon:"):
                return int(line.split()[1]) * 1024
    return 0
