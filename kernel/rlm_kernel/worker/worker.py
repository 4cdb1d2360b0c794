"""The loop of a kernel process: requests from the supervisor in, Jupyter messages out.

The zygote runs it, and so does everything that is forked from it (`forking`).
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from rlm_ipc import framing, processes, worker_protocol, worker_requests
from rlm_ipc.worker_protocol import Fork, Resolved, Resume, Resumed, RunCell, Start, Started, StartFork, decode
from rlm_kernel.worker import fork_session, requests
from rlm_kernel.worker.cell_runner import CellRunner
from rlm_kernel.worker.forking import Forking
from rlm_kernel.worker.rehearsal import Rehearsal
from rlm_kernel.worker.session_state import user_code
from rlm_kernel.worker.snapshots.image import parted
from rlm_kernel.worker.warmup import Warmup
from rlm_kernel.worker.worker_process import WorkerProcess
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.os_wall import rlimits

NEEDS_DESCRIPTORS = (Fork.TAG, Resume.TAG, StartFork.TAG)
"""Messages that run no code of the session, and whose work opens files: pipes, an event loop."""


class Worker:
    """Serves the supervisor at the other end of ``line``, and its successors."""

    def __init__(self, line: socket.socket, lifeline: socket.socket, generation: int) -> None:
        self.process = WorkerProcess(line, lifeline, generation)
        self._own_work = _OwnWork(self.process)
        self._runner = CellRunner(self.process)
        self.warmup = Warmup(self.process, self._runner)
        self._forking = Forking(self.process, self.warmup)
        self._rehearsal = Rehearsal(self.process, self._runner)
        self._handlers: dict[bytes, Callable[[framing.Message], None]] = {
            RunCell.TAG: self._run_cell,
            worker_protocol.SHELL: self._dispatch,
            worker_protocol.CONTROL: self._dispatch,
            worker_protocol.INTERRUPT: self._interrupt,
            worker_protocol.SAY_AGAIN: lambda _: self.process.link.say_again(),
            worker_requests.REQUEST: self._answer,
            Fork.TAG: lambda message: self._forking.fork(decode(Fork, message.parts[0]), message.descriptors),
            worker_protocol.PREFAULT: lambda _: self._rehearsal.touch_pages(),
            Start.TAG: self._start,
            StartFork.TAG: self._start_fork,
            Resume.TAG: lambda message: self._resume(decode(Resume, message.parts[0])),
            Resolved.TAG: self.process.resolve,
        }

    def serve(self) -> NoReturn:
        """Serve the supervisor until it goes away.

        A fault of our own is reported to the supervisor before the process ends.
        """
        link = self.process.link
        # Every exit is `os._exit`. `sys.exit` would run the exit handlers and flush the buffers that this process
        # inherited from the zygote, once in every fork.
        try:
            while self._turn():
                pass
        except MemoryError:
            os._exit(processes.EXIT_MEMORY)  # the status is the report: formatting a traceback takes memory
        except BaseException:
            link.hold(False)
            link.send(worker_protocol.FATAL, (traceback.format_exc().encode("utf-8", "replace"),))
            os._exit(processes.EXIT_FAULT)
        os._exit(0)

    def _turn(self) -> bool:
        """Handle one message. Return False when the supervisor has gone."""
        if (message := self._next()) is None:
            return False
        handler = self._handlers.get(message.tag)
        if handler is not None and message.tag in NEEDS_DESCRIPTORS:
            with self._own_work:
                handler(message)
        elif handler is not None:
            handler(message)
        return True

    def _next(self) -> framing.Message | None:
        """Wait for the next message. The user's pending tasks keep running meanwhile."""
        process = self.process
        if not process.dormant and process.link.parser.empty and process.loop.pending():
            # The loop waits on the line only while a task needs it. A blocking `recvmsg` answers a lone request sooner,
            # because it makes no future and wakes no selector.
            with user_code(process.session):
                process.loop.run_until_readable(process.link.socket.fileno())
        with self._own_work:  # a message may bring descriptors
            return process.link.receive()

    def _run_cell(self, message: framing.Message) -> None:
        cell = decode(RunCell, message.parts[0])
        self.process.link.begin(cell.serial)
        self._part_from_image()
        self._runner.run_cell(cell)

    def _dispatch(self, message: framing.Message) -> None:
        *parts, serial = message.parts
        self.process.link.begin(int.from_bytes(serial))
        self._part_from_image()
        self._runner.run(self.process.kernel.dispatch(self.process.sockets[message.tag], parts))

    def _part_from_image(self) -> None:
        """Detach an image that is being handed out from the session's objects, which code is about to change."""
        state = self.process.session
        if state is not None and state.image is not None:
            (told, parts), state.image = state.image, None
            with suppress(MemoryError):  # then there is no image any more
                state.image = told, parted(parts)

    def _answer(self, message: framing.Message) -> None:
        requests.answer(self.process, message)

    def _interrupt(self, _message: framing.Message) -> None:
        self.process.kernel.interrupted = True

    def _start(self, message: framing.Message) -> None:
        """Become a session: take its policy, raise the walls, and report which of them are active."""
        process, start = self.process, decode(Start, message.parts[0])
        process.tether = message.descriptors
        try:
            state = process.session = process.new_session(start)
            streams, shell = (process.stdout, process.stderr), process.kernel.shell
            report, descriptors = state.begin(shell, streams, process.descriptors, process.isolation, process.seclusion)
            process.use_streams()
        except Exception as error:
            process.send(Started(error=f"{type(error).__name__}: {error}"))
            os._exit(1)
        with rlimits.handing_over(state.policy):
            process.send(Started(fork_session.wall_states(report)), descriptors)
        framing.close_all(descriptors)
        state.close_wall()

    def _start_fork(self, message: framing.Message) -> None:
        # The other one is its parent's: code of this session must not find it.
        framing.close_all(self.process.tether)
        self.process.tether = message.descriptors
        fork_session.begin(self.process, decode(StartFork, message.parts[0]))

    def _resume(self, resume: Resume) -> None:
        self.process.activate()
        if self.process.session is not None:
            self.process.session.queries.skip_to(resume.query_base)
        self.process.send(Resumed())


class _OwnWork:
    """A ``with`` block between cells, in which we have the descriptors that code of the session may not open."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def __enter__(self) -> None:
        if self._process.session is not None:
            _set_reserve(available=True)

    def __exit__(self, *_: object) -> None:
        if self._process.session is not None:  # it may have begun meanwhile
            _set_reserve(available=False)


@trusted
def _set_reserve(*, available: bool) -> None:
    if available:
        rlimits.open_reserve()
    else:
        rlimits.close_reserve()
