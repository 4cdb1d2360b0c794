"""How a cell waits for answers: in its own frame, on the kernel's line to the supervisor, without threads.

A user may interrupt the wait at any moment. But an interrupt between reading a message and acting on it would lose the
message. So SIGINT is blocked while messages are taken, and let through only during the wait itself.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

from rlm_ipc import framing
from rlm_ipc.worker_protocol import Resolved, Waits, decode, encode

_INTERRUPT = {signal.SIGINT}


class CannotWait(RuntimeError):
    """Code outside a running cell cannot wait for an answer: nobody would read the line to the supervisor."""


class Suspension:
    """Lets the running cell wait. ``in_cell`` returns whether one runs."""

    def __init__(self, link: framing.SupervisorLink, in_cell: Callable[[], bool]) -> None:
        self._link = link
        self._in_cell = in_cell
        self._waits = False

    def check(self) -> None:
        """Raise `CannotWait` unless the caller may wait now."""
        # ``_waits``: a signal handler or finaliser may run inside a wait and ask again. Two readers of one line would
        # take each other's messages.
        if self._waits or not self._in_cell() or threading.current_thread() is not threading.main_thread():
            raise CannotWait(
                "only the code of a running cell can wait for an answer, not its threads or what runs between cells; "
                "ask with mode='deferred' here"
            )

    def wait(self, ids: Sequence[str], take: Callable[[Resolved], bool]) -> None:
        """Wait for the queries ``ids``: pass the supervisor's news to ``take`` until it returns True.

        Raises `CannotWait` outside a cell and in its threads, and the same exception for an interrupt as other code.
        """
        self.check()
        before = signal.getsignal(signal.SIGINT)
        self._waits = True
        try:
            signal.signal(signal.SIGINT, _raising(before))
            self._tell(Waits(tuple(ids)))
            self._until_enough(take)
        except BaseException:
            # The supervisor stops the cell's clock during a wait. A second interrupt here would skip the message that
            # restarts it, and the cell would have no time limit from then on.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._tell(Waits())
            raise
        finally:
            self._waits = False
            signal.signal(signal.SIGINT, before)

    def _tell(self, waits: Waits) -> None:
        tag, part = encode(waits)
        self._link.send(tag, (part,))

    def _until_enough(self, take: Callable[[Resolved], bool]) -> None:
        readable = select.poll()
        readable.register(self._link.socket.fileno(), select.POLLIN)
        enough = self._drain(take, read=False)
        while not enough:
            readable.poll()
            enough = self._drain(take, read=True)

    def _drain(self, take: Callable[[Resolved], bool], *, read: bool) -> bool:
        """Take what has arrived. A kernel that runs a cell gets nothing else, except input that nobody asked for."""
        try:
            # Inside the `try`: a pending SIGINT is raised by this very call, after it has blocked the signal.
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
            if read and not self._link.read():
                os._exit(0)
            enough = False
            while (message := self._link.parser.next()) is not None:
                message.close()
                if message.tag == Resolved.TAG:
                    enough = take(decode(Resolved, message.parts[0])) or enough
            return enough
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)


def _raising(before: Any) -> Any:
    """Return the SIGINT handler for the wait. It raises KeyboardInterrupt, or cancels a cell that uses ``await``."""
    if before is signal.default_int_handler:
        return before

    def cancel(number: int, frame: Any) -> None:
        if callable(before):
            before(number, frame)  # cancels the cell as soon as its event loop runs again
        # This frame blocks that loop, so the handler alone would have no effect before the answer arrives.
        raise asyncio.CancelledError

    return cancel
