"""The parts of one kernel process: its line to the supervisor, its IPython kernel, its event loop, its session.

The rest of this package works on these: `worker` serves the line, `cell_runner` runs cells, `forking` makes copies.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from IPython.core.profiledir import ProfileDir
from tornado.ioloop import IOLoop
from traitlets.config import Config

from rlm_ipc import framing, worker_protocol
from rlm_ipc.kernel_reports import AskedQuery
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import plain
from rlm_ipc.worker_protocol import Asked, Forked, Handshake, Report, Resolved, Resumed, Start, Started, decode, encode
from rlm_ipc.worker_requests import Answered
from rlm_kernel.worker import threads
from rlm_kernel.worker.event_loop import EventLoop
from rlm_kernel.worker.ipykernel_adapter import SandboxedKernel
from rlm_kernel.worker.session_state import WorkerSession, user_code
from rlm_kernel.worker.stdio import LinkSession, LinkSocket, TextStream
from rlm_kernel.worker.suspension import Suspension
from rlm_sandbox.namespaces import Namespace
from rlm_sandbox.os_wall.confine import Isolation
from rlm_sandbox.os_wall.private_root import Seclusion


@dataclass(frozen=True, slots=True)
class Left:
    """What a fork does not inherit: threads, by name, and a number of asyncio tasks."""

    threads: tuple[str, ...] = ()
    tasks: int = 0


_NOTHING_LEFT = Left()
_PASSING = frozenset((Answered.TAG, Forked.TAG, Handshake.TAG, Started.TAG, Resumed.TAG))
"""Messages of interest only to the supervisor that asked."""


class WorkerProcess:
    """The parts of one kernel process.

    A ``dormant`` one is a sleeping copy. ``isolation`` and ``seclusion`` are the walls that a process has raised before
    its session starts (`warmup`, `forking`).
    """

    def __init__(self, line: socket.socket, lifeline: socket.socket, generation: int) -> None:
        self.link = framing.SupervisorLink(line, lifeline, generation)
        self.link.report, self.link.passing = self._report, _PASSING
        self.tether: tuple[int, ...] = ()
        """Descriptors that are only held: see `Start`."""
        self.loop = EventLoop()
        self.dormant = False
        self.session: WorkerSession | None = None
        self.isolation: Isolation | None = None
        self.seclusion: Seclusion | None = None
        self.idle_pools: threads.IdlePools = ()
        """Pools of threads that were idle when this process was forked."""
        self.stdout, self.stderr = (
            TextStream(self.link, worker_protocol.STDOUT),
            TextStream(self.link, worker_protocol.STDERR),
        )
        self.sockets = {
            tag: LinkSocket(self.link, tag)
            for tag in (worker_protocol.SHELL, worker_protocol.CONTROL, worker_protocol.IOPUB, worker_protocol.STDIN)
        }
        # A new folder, because ~/.ipython is the user's: its configuration would change what a session does.
        self.home = tempfile.mkdtemp(prefix="rlm-ipython-")
        self.kernel = self._build_kernel()
        self.suspension = Suspension(self.link, in_cell=lambda: self.kernel.in_cell)

    def _build_kernel(self) -> SandboxedKernel:
        config = Config()
        # IPython keeps its history in SQLite and saves it from a thread. Neither survives a fork.
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        os.environ["IPYTHONDIR"] = self.home
        kernel: SandboxedKernel = SandboxedKernel.instance(
            config=config,
            # Jupyter's session drops whatever a forked process sends, unless `check_pid` is off. The key is empty
            # because the supervisor signs: code in this process could read a key and forge messages.
            session=LinkSession(self.link, check_pid=False, key=b""),
            profile_dir=ProfileDir.create_profile_dir(self.home),
            iopub_socket=self.sockets[worker_protocol.IOPUB],
            shell_stream=self.sockets[worker_protocol.SHELL],
            control_stream=self.sockets[worker_protocol.CONTROL],
            stdin_channel=self.sockets[worker_protocol.STDIN],
            receive_input=self._receive_input,
            on_abort=lambda: self.link.send(worker_protocol.ABORT),
            hold=self.link.hold,
            new_task=self.loop.task,
            log=_log(self.link),
            user_ns={},
        )
        # Only `interruptible` brackets listen to SIGINT. Anywhere else a KeyboardInterrupt would break our own code
        # half-way. The supervisor reads the ignored signals from /proc, and waits while SIGINT is among them.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return kernel

    # -- the user's side

    @property
    def namespace(self) -> Namespace:
        """The user's globals."""
        return self.kernel.shell.user_ns  # type: ignore[no-any-return]

    @property
    def hidden(self) -> Namespace:
        """Globals that the session came with."""
        return self.kernel.shell.user_ns_hidden  # type: ignore[no-any-return]

    def new_session(self, start: Start) -> WorkerSession:
        """Return the state of a session in this process; it has no walls yet."""
        return WorkerSession(start, self._announce, self.suspension)

    def _announce(self, queries: Sequence[AskedQuery]) -> None:
        self.send(Asked(tuple(map(plain, queries))))

    def forget_cells(self) -> None:
        """Make the next cell the first one, in an empty namespace."""
        self.kernel.shell.reset(new_session=True)
        self.kernel.shell.execution_count = 1

    # -- the supervisor's side

    @property
    def idle(self) -> bool:
        """True while no message is due, and no task of the user waits for the loop; never in a copy."""
        return not self.dormant and self.link.parser.empty and not self.loop.pending()

    @property
    def descriptors(self) -> list[int]:
        """Return the descriptors that this process still needs: its line, lifeline, tether and event loop."""
        link = self.link
        return [0, 1, 2, link.socket.fileno(), link.lifeline.fileno(), *self.tether, *self.loop.descriptors()]

    def send(self, message: worker_protocol.Tagged, descriptors: Sequence[int] = ()) -> None:
        """Send a message that has fields to the supervisor."""
        tag, part = encode(message)
        self.link.send(tag, (part,), descriptors)

    def handshake(self, left: Left = _NOTHING_LEFT, kernel_info: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Tell the supervisor that this process is ready, and what it did not inherit when it was forked."""
        self.send(Handshake(os.getpid(), left.threads, left.tasks, dict(kernel_info)))

    def _report(self) -> bytes:
        # Only a zygote is asked about its kernels.
        info = dict(self.kernel.kernel_info) if self.session is None else {}
        tag, part = encode(Report(self.link.request, self.link.unsaid, info))
        return framing.pack(tag, (part,))

    def resolve(self, message: framing.Message) -> None:
        """Take answers for a waiting cell that arrive after it has stopped waiting."""
        if self.session is not None:
            with user_code(self.session):  # also while `input` waits, in the middle of the wall's own work
                self.session.resolve(self.namespace, decode(Resolved, message.parts[0]))

    def _receive_input(self) -> framing.Message | None:
        """Wait for an answer on the stdin channel; None when the supervisor has gone."""
        while (message := self.link.receive()) is not None and message.tag != worker_protocol.STDIN:
            if message.tag == Resolved.TAG:
                self.resolve(message)
        return message

    @contextmanager
    def muted(self) -> Iterator[None]:
        """Run cells silently. They take no interrupt, because none can be meant for them."""
        self.kernel.deaf = True
        try:
            with self.link.muted():
                yield
        finally:
            self.kernel.deaf = False

    # -- becoming a process that serves

    def activate(self) -> None:
        """Become a process that serves, with its own message counter, event loop and streams."""
        self.dormant = False
        threads.restart(self.idle_pools)
        self.kernel.session.message_count = 0
        self.renew_loop()
        self.use_streams()
        self.kernel.shell.exit_now = False

    def renew_loop(self) -> None:
        """Start with a new event loop, which ipykernel reaches through tornado."""
        self.loop.renew()
        self.kernel.io_loop = IOLoop.current()

    def use_streams(self) -> None:
        """Send prints through the streams of the session's wall, if it has one."""
        walled = self.session.streams if self.session is not None else None
        streams = walled or (self.stdout, self.stderr)
        # ipykernel holds its own references to both, from when the zygote built the kernel.
        sys.stdout, sys.stderr = self.kernel._stdout, self.kernel._stderr = streams


class _SupervisorHandler(logging.Handler):
    """Sends log records to the supervisor: our own faults do not belong on the user's stderr."""

    def __init__(self, link: framing.SupervisorLink) -> None:
        super().__init__(logging.WARNING)
        self.link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        self.link.send(worker_protocol.FATAL, (self.format(record).encode("utf-8", "replace"),))


def _log(link: framing.SupervisorLink) -> logging.Logger:
    log = logging.getLogger("rlm_kernel.worker")
    log.propagate = False
    log.addHandler(_SupervisorHandler(link))
    return log
