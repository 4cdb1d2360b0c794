"""The loop of a kernel process: requests from the supervisor in, Jupyter messages out, and fork.

One message, `Fork`, makes three things. In the warm zygote it makes a new session. In a session between two cells it
makes a forked session, or a checkpoint: a copy that sleeps until it has to take over.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.profiledir import ProfileDir
from tornado.ioloop import IOLoop
from traitlets.config import Config

from rlm_contexts.errors import ContextError
from rlm_ipc import framing, processes, signals, worker_protocol, worker_requests
from rlm_ipc.errors import KernelError, to_wire
from rlm_ipc.kernel_reports import AskedQuery
from rlm_ipc.messages import plain
from rlm_ipc.worker_protocol import (
    Asked,
    CellDone,
    CellReply,
    CellStatus,
    Fork,
    Forked,
    ForkState,
    Handshake,
    RefusedAttempts,
    Resolved,
    Resume,
    Resumed,
    RunCell,
    Start,
    Started,
    StartFork,
    decode,
    encode,
)
from rlm_ipc.worker_requests import Answered, Failure, read_request
from rlm_kernel.worker import fork_session, rehearsal, requests, tasks
from rlm_kernel.worker import session_state as session
from rlm_kernel.worker.ipykernel_adapter import SandboxedKernel, interruptible
from rlm_kernel.worker.stdio import LinkSession, LinkSocket, TextStream
from rlm_kernel.worker.suspension import Suspension
from rlm_kernel.worker.traceback import name_of, text_of
from rlm_kernel.worker.variables import changed, identities, prune
from rlm_sandbox.language_wall.audit_hook import refusals, trusted
from rlm_sandbox.language_wall.modules.system import new_loop
from rlm_sandbox.os_wall import private_root, rlimits
from rlm_sandbox.os_wall.confine import Isolation, isolate

if TYPE_CHECKING:
    from rlm_sandbox.policy.model import Policy


@dataclass(frozen=True, slots=True)
class Left:
    """What a fork does not take along: threads, by name, and a number of asyncio tasks."""

    threads: tuple[str, ...] = ()
    tasks: int = 0


_NOTHING_LEFT = Left()
# Objects of an event loop that this process inherited and must not use. Nothing may ever collect them: their
# finalisers close descriptor numbers that belong to other files by then.
_KEPT: list[object] = []
_FIRST = 1
"""The init process of a pid namespace, which the kernel makes the parent of every orphan in it."""


class Worker:
    """One kernel process. ``supervisor`` is the pid of its parent, as this process sees it."""

    def __init__(self, sock: socket.socket, supervisor: int) -> None:
        self.link = framing.SupervisorLink(sock)
        self.parents: tuple[int, ...] = (supervisor,)
        self.dormant = False
        self.session: session.WorkerSession | None = None
        self._refused = (0, 0)
        """Attempts that the audit hook refused, and cells that the compiler refused, up to the last report."""
        self._expected = ""
        self._isolation: Isolation | None = None
        self._seclusion: private_root.Seclusion | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stdout, self.stderr = (
            TextStream(self.link, worker_protocol.STDOUT),
            TextStream(self.link, worker_protocol.STDERR),
        )
        self.sockets = {
            tag: LinkSocket(self.link, tag)
            for tag in (worker_protocol.SHELL, worker_protocol.CONTROL, worker_protocol.IOPUB, worker_protocol.STDIN)
        }
        self.kernel = self._build_kernel()
        self.suspension = Suspension(self.link, in_cell=lambda: self.kernel.in_cell)

    def _build_kernel(self) -> SandboxedKernel:
        config = Config()
        # IPython keeps its history in SQLite and saves it from a thread. Neither survives a fork.
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        # A new folder, because ~/.ipython is the user's: its configuration would change what a session does.
        home = tempfile.mkdtemp(prefix="rlm-ipython-")
        os.environ["IPYTHONDIR"] = self._home = home
        kernel: SandboxedKernel = SandboxedKernel.instance(
            config=config,
            # Jupyter's session drops whatever a forked process sends, unless `check_pid` is off. The key is empty
            # because the supervisor signs: code in this process could read a key and forge messages.
            session=LinkSession(self.link, check_pid=False, key=b""),
            profile_dir=ProfileDir.create_profile_dir(home),
            iopub_socket=self.sockets[worker_protocol.IOPUB],
            shell_stream=self.sockets[worker_protocol.SHELL],
            control_stream=self.sockets[worker_protocol.CONTROL],
            stdin_channel=self.sockets[worker_protocol.STDIN],
            receive_input=self._input,
            on_abort=lambda: self.link.send(worker_protocol.ABORT),
            hold=self.link.hold,
            log=_log(self.link),
            user_ns={},
        )
        # Only `interruptible` brackets listen to SIGINT. Anywhere else a KeyboardInterrupt would break our own code
        # half-way. The supervisor reads the ignored signals from /proc, and waits while SIGINT is among them.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return kernel

    @property
    def namespace(self) -> dict[str, Any]:
        """The user's globals."""
        return self.kernel.shell.user_ns  # type: ignore[no-any-return]

    @property
    def hidden(self) -> dict[str, Any]:
        """Globals that the session came with."""
        return self.kernel.shell.user_ns_hidden  # type: ignore[no-any-return]

    # -- the zygote's part

    def warm(self, expected: Policy) -> None:
        """Run the paths of a first cell once, so that every fork has them in memory; then forget their traces.

        ``expected`` is the policy for which forks prepare themselves.
        """
        self._expected = expected.model_dump_json()
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = self.stdout, self.stderr
        self._new_loop()
        assert self.loop is not None
        with self._muted():
            for code in ("1+1", "missing", "import asyncio\nawait asyncio.sleep(0)", "print(1)"):
                self.loop.run_until_complete(self.kernel.do_execute(code, False))
        self._any_session().queries.helpers()
        self.loop.close()
        asyncio.set_event_loop(None)
        sys.stdout, sys.stderr = streams
        self._forget_cells()
        # The collector writes to the header of every object that it visits, which copies the page in each fork. Frozen
        # objects are never visited, so the pages of the imports stay shared for good.
        gc.collect()
        gc.freeze()
        processes.trim_heap()

    def _forget_cells(self) -> None:
        self.kernel.shell.reset(new_session=True)
        self.kernel.shell.execution_count = 1

    @contextmanager
    def _muted(self) -> Iterator[None]:
        """Run cells silently. They take no interrupt, because none can be meant for them."""
        send, self.link.send = self.link.send, lambda *_args, **_options: None  # type: ignore[method-assign]
        self.kernel.deaf = True
        try:
            yield
        finally:
            self.kernel.deaf = False
            self.link.send = send  # type: ignore[method-assign]
            self.link.hold(False)

    def send(self, message: worker_protocol.Tagged, descriptors: Sequence[int] = ()) -> None:
        """Send a message that has fields to the supervisor."""
        tag, part = encode(message)
        self.link.send(tag, (part,), descriptors)

    def handshake(self, left: Left = _NOTHING_LEFT, kernel_info: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Tell the supervisor that this process is there, and what it did not take along when it was forked."""
        self.send(Handshake(os.getpid(), left.threads, left.tasks, dict(kernel_info)))

    def serve(self) -> NoReturn:
        """Serve the supervisor until it goes away.

        A fault of our own is reported to the supervisor before the process ends.
        """
        # Every way out is `os._exit`. `sys.exit` would run the exit handlers and flush the buffers that this process
        # inherited from the zygote, once in every fork.
        try:
            while self._turn():
                pass
        except MemoryError:
            os._exit(processes.EXIT_MEMORY)  # the status is the report: to format a traceback takes memory
        except BaseException:
            self.link.hold(False)
            self.link.send(worker_protocol.FATAL, (traceback.format_exc().encode("utf-8", "replace"),))
            os._exit(processes.EXIT_FAULT)
        os._exit(0)

    def _turn(self) -> bool:
        """Handle one message; False when the supervisor has gone."""
        message = self._next()
        if message is not None:
            self._handle(message)
        return message is not None

    def _handle(self, message: framing.Message) -> None:
        if message.tag == RunCell.TAG:
            self._attend(self.kernel.run_cell(decode(RunCell, message.parts[0])))
        elif message.tag == worker_protocol.INTERRUPT:
            self.kernel.interrupted = True
        elif message.tag in (worker_protocol.SHELL, worker_protocol.CONTROL):
            self._attend(self.kernel.dispatch(self.sockets[message.tag], message.parts))
        elif message.tag == worker_requests.REQUEST:
            self._answer(message)
        elif message.tag == Fork.TAG:
            self._fork(message)
        elif message.tag == worker_protocol.PREFAULT:
            self._touch_pages()
        elif message.tag == Start.TAG:
            self._start(decode(Start, message.parts[0]))
        elif message.tag == StartFork.TAG:
            fork_session.begin(self, decode(StartFork, message.parts[0]))
        elif message.tag == Resume.TAG:
            self._resume(decode(Resume, message.parts[0]))
        elif message.tag == Resolved.TAG:
            self._resolved(message)

    def _resolved(self, message: framing.Message) -> None:
        """Take answers that were sent to a waiting cell and arrive after it has stopped waiting."""
        if self.session is not None:
            with session.user_code(self.session):  # also while `input` waits, in the middle of the wall's own work
                self.session.resolve(self.namespace, decode(Resolved, message.parts[0]))

    def _input(self) -> framing.Message | None:
        """Wait for an answer on the stdin channel; None when the supervisor has gone."""
        while (message := self.link.receive()) is not None and message.tag != worker_protocol.STDIN:
            if message.tag == Resolved.TAG:
                self._resolved(message)
        return message

    def _next(self) -> framing.Message | None:
        """Wait for the next message. The user's pending tasks go on running meanwhile."""
        loop = self.loop
        if loop is not None and not self.dormant and self.link.parser.empty and tasks.pending(loop):
            # The loop waits on the line only while a task needs it. A blocking `recvmsg` answers a lone request sooner,
            # because it makes no future and wakes no selector.
            readable = loop.create_future()
            loop.add_reader(self.link.socket.fileno(), _set, readable)
            try:
                with session.user_code(self.session):
                    tasks.run(loop, readable)
            finally:
                loop.remove_reader(self.link.socket.fileno())
        return self.link.receive()

    # -- requests

    def _attend(self, work: Coroutine[Any, Any, dict[str, Any] | None]) -> None:
        """Do the work of one request and report that it is done, with the reply if it was a cell."""
        assert self.loop is not None
        before, reply = identities(self.namespace), None
        # Busy, reply, idle and the report leave in one write: each write wakes the supervisor.
        self.link.hold(True)
        try:
            reply = tasks.run(self.loop, work)
        finally:
            self.kernel.interrupted = False
            self._prune()
            self.send(self._done(reply, before))
            self.link.hold(False)

    def _prune(self) -> None:
        with session.user_code(self.session), suppress(BaseException):  # a key may raise when it is compared
            if self.session is not None:
                self.session.rebind(self.namespace)
            prune(self.namespace, self.kernel.shell.history_manager, self.kernel.execution_count)

    def _done(self, reply: dict[str, Any] | None, before: Mapping[str, int]) -> CellDone:
        state = self.session
        told, self._refused = self._refused, (refusals(), self.kernel.shell.refused_cells)
        defined, shadowed, returned = changed(before, self.namespace, self.hidden), [], set()
        given = None
        if state is not None:
            with session.user_code(state):  # an object that is let go may call what code has given it
                given = state.given(self.namespace)
        if state is not None and state.contexts:
            shadowed = state.shadowed(self.namespace)
            returned, state.returned = state.returned, set()
            defined = [name for name in defined if name not in state.contexts or name in shadowed]
        refused = RefusedAttempts(*(now - before for now, before in zip(self._refused, told, strict=True)))
        names = tuple(defined), tuple(shadowed), tuple(sorted(returned))
        return CellDone(None if reply is None else _reply(reply), *names, refused, given)

    def _answer(self, message: framing.Message) -> None:
        request = read_request(json.loads(message.parts[0]))
        try:
            with interruptible():
                reply, blobs = requests.handle(self, request, message)
            tag, part = encode(Answered(plain(reply)))
        except BaseException as error:  # the request may run a ``__repr__`` of the user's, which may raise anything
            (tag, part), blobs = encode(Answered(failure=_failure(error))), ()
        self.link.send(tag, (part, *blobs))

    # -- fork

    def _fork(self, message: framing.Message) -> None:
        """Fork a child that owns the descriptor sent along. It waits for a session, or sleeps as a checkpoint."""
        request = decode(Fork, message.parts[0])
        # Threads do not exist in the child, but the locks that they hold do, and stay locked there for ever. A
        # checkpoint with such a lock could hang when it is needed, so none is taken.
        threads = tuple(fork_session.other_threads())
        if threads and not request.leave_threads:
            message.close()
            self.send(Forked(error="the session has threads", threads=threads))
            return
        left = Left(threads, len(tasks.pending(self.loop)))
        seclusion = self._seclusion_to_come() if request.private else None
        # seccomp stops the clone until the supervisor has answered. A signal that arrives meanwhile would end the call
        # with EINTR, or restart it after the supervisor has used up its permission.
        blocked = signals.set_mask(signal.SIG_BLOCK, signals.ALL)
        asleep = message.descriptors[0] if request.asleep else None
        pause = None if threads or asleep is None else self._pause(asleep, blocked)
        # The copy shares this socket until it has moved to its own. An at-fork handler that prints would write from
        # two processes into one stream of frames.
        self.link.hold(True)
        try:
            pid = (
                self._fork_leaving_threads()
                if threads
                else processes.fork_sibling(asleep=asleep, first=self._greeting(asleep), pause=pause)
            )
        except (OSError, MemoryError) as error:
            message.close()
            self.send(Forked(error=str(error), errno=getattr(error, "errno", None)))
            self.link.hold(False)
            return
        finally:
            signals.set_mask(signal.SIG_SETMASK, blocked)
        if pid:
            if pause is None:
                message.close()
                self.send(Forked(pid))
            self.link.hold(False)
        else:
            if seclusion is not None:
                self._seclude(seclusion, message.descriptors[1])
            self._become_child(message.descriptors[0], request, left)

    def _seclusion_to_come(self) -> private_root.Seclusion:
        return private_root.Seclusion(Path(self._home), private_root.try_out(os.geteuid()))

    def _seclude(self, seclusion: private_root.Seclusion, pin: int) -> None:
        """In a fork of the zygote: go on in a further fork that has a pid namespace, if the system allows it."""
        self._seclusion = seclusion
        if not seclusion.refusal:
            # unshare(CLONE_NEWPID) moves only the children to come. The first becomes pid 1, and the kernel ends the
            # whole namespace with it: so it does nothing but wait for the supervisor's end of the pin. The second
            # becomes the session, and this process has no further use.
            private_root.leave_processes()
            if processes.fork_sibling(asleep=pin, first=partial(private_root.lower_first, pin)) == 0:
                os._exit(0)
            if processes.fork_sibling() != 0:
                os._exit(0)
            self.parents = processes.PARENT_OUTSIDE, _FIRST
        os.close(pin)

    def _greeting(self, asleep: int | None) -> Callable[[], object] | None:
        """What a sleeping copy does before it sleeps: nothing, or in a private session one write.

        The pid that this process sees for the copy means nothing outside its pid namespace. The kernel tells the
        supervisor the real one with the first bytes that the copy itself writes (SCM_CREDENTIALS).
        """
        if asleep is None or self._seclusion is None:
            return None
        tag, part = encode(Handshake())
        return partial(os.write, asleep, framing.pack(tag, (part,)))

    @trusted
    def _fork_leaving_threads(self) -> int:
        return processes.fork_leaving_threads()

    def _pause(self, asleep: int, held: Iterable[int]) -> Callable[[int], None] | None:
        """Build the call that reports the copy and then waits for the supervisor; None while other work is due.

        It runs between the fork and CPython's own work after a fork. Until the supervisor writes again, this process
        touches no page, and goes on sharing all of its memory with the copy.
        """
        if self.dormant or not self.link.parser.empty or self.loop is None or tasks.pending(self.loop):
            return None
        self.link.hold(False)
        # The frame is packed before the fork, with the pid padded to a fixed width, so that afterwards only the digits
        # are made. Anything more would write to shared pages.
        head, descriptor = framing.pack(Forked.TAG, (b'{"pid":%10d}' % 0,))[:-11], self.link.socket.fileno()
        wait = processes.wait_for(descriptor, held)

        def pause(pid: int) -> None:
            os.close(asleep)
            os.write(descriptor, head + b"%10d}" % pid)
            wait()

        return pause

    def _become_child(self, descriptor: int, request: Fork, left: Left) -> None:
        self.link.move(_line_of(descriptor))
        self._drop_loop()
        processes.adopted_by(self.parents)
        self.dormant = request.state is ForkState.DORMANT
        if not self.dormant:
            self.activate()
        if request.state is ForkState.WARM:
            self._make_ready()
        self.handshake(left)

    def _make_ready(self) -> None:
        """In a fork of the zygote: do ahead what is the same for every usual session.

        A usual session compiles its cells under a policy and has no network. One cell is rehearsed behind the language
        wall: each page that the system copies now is one less to copy while somebody waits.
        """
        session.resolve_in()
        with self._muted():
            self.session = self._any_session()
            self.session.raise_language_wall(self.kernel.shell, (self.stdout, self.stderr))
            self.use_streams()
            tag, part = encode(RunCell("1+1"))
            self._handle(framing.Message(tag, (part,)))
        self.session = None
        self._forget_cells()
        self._isolation = isolate(self._descriptors(), network=False, seclusion=self._seclusion)

    def _any_session(self) -> session.WorkerSession:
        return session.WorkerSession(Start(self._expected, "/", query_base=1), self._announce, self.suspension)

    def _touch_pages(self) -> None:
        """After a copy was taken of a session: write to the pages that any cell writes to, by a cell that does nothing.

        The first write to a shared page copies it: done now it is done while the person thinks, and not in the next
        cell. Left out where it could be noticed: without a wall (IPython's hooks are the user's there), while tasks of
        the user's wait for the loop, and in a copy.
        """
        loop = self.loop
        idle = loop is not None and not self.dormant and not tasks.pending(loop) and self.link.parser.empty
        if not idle or self.session is None or self.session.wall is None:
            return
        assert loop is not None
        with self._muted(), suppress(Exception):
            before = identities(self.namespace)
            reply = tasks.run(loop, self.kernel.run_cell(rehearsal.cell()))
            self._prune()
            defined, shadowed = changed(before, self.namespace, self.hidden), self.session.shadowed(self.namespace)
            rehearsal.answer(self.kernel.shell, self.stdout, CellDone(_reply(reply), tuple(defined), tuple(shadowed)))
            rehearsal.be_asked_for_fork()
            self._pause(self.link.socket.fileno(), signals.set_mask(signal.SIG_BLOCK, ()))

    def _start(self, start: Start) -> None:
        """Become a session: take its policy, raise the walls, and report which of them stand."""
        try:
            state = session.WorkerSession(start, self._announce, self.suspension)
            self.session = state
            streams, keep = (self.stdout, self.stderr), self._descriptors()
            report, descriptors = state.begin(self.kernel.shell, streams, keep, self._isolation, self._seclusion)
            self.use_streams()
        except Exception as error:
            self.send(Started(error=f"{type(error).__name__}: {error}"))
            os._exit(1)
        with rlimits.handing_over(state.policy):
            self.send(Started(fork_session.wall_states(report)), descriptors)
        for fd in descriptors:
            os.close(fd)
        state.close_wall()

    def _descriptors(self) -> list[int]:
        """The descriptors that this process goes on using: its line to the supervisor and its event loop."""
        loop: Any = self.loop
        return [
            0,
            1,
            2,
            self.link.socket.fileno(),
            *(s.fileno() for s in (loop._selector, loop._ssock, loop._csock)),
        ]

    def _announce(self, queries: Sequence[AskedQuery]) -> None:
        self.send(Asked(tuple(map(plain, queries))))

    def _resume(self, resume: Resume) -> None:
        self.activate()
        if self.session is not None:
            self.session.queries.skip_to(resume.query_base)
        self.send(Resumed())

    def activate(self) -> None:
        """Become a process that serves, with a message counter, an event loop and streams of its own."""
        self.dormant = False
        self.kernel.session.message_count = 0
        self._new_loop()
        self.use_streams()
        self.kernel.shell.exit_now = False

    def use_streams(self) -> None:
        """Send prints through the streams of the session's wall, if it has one."""
        walled = self.session.streams if self.session is not None else None
        streams = walled or (self.stdout, self.stderr)
        # ipykernel holds references of its own to both, from when the zygote built the kernel.
        sys.stdout, sys.stderr = self.kernel._stdout, self.kernel._stderr = streams

    def _new_loop(self) -> None:
        self.loop = new_loop()
        asyncio.set_event_loop(self.loop)
        self.kernel.io_loop = IOLoop.current()

    def _drop_loop(self) -> None:
        """In the child of a fork: give up the event loop without touching it, because its epoll is the parent's too."""
        loop = self.loop
        if loop is not None and not loop.is_closed():
            _KEPT.extend(tasks.forget(loop))
            # The descriptors are closed by number. `loop.close()` would first unregister them, and EPOLL_CTL_DEL acts
            # on the epoll instance itself: the parent's loop would go deaf.
            for fd in (loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()):  # type: ignore[attr-defined]
                os.close(fd)
        self.loop = None
        asyncio.set_event_loop(None)
        # Signal handlers write to this descriptor, whose number may soon mean another file.
        signal.set_wakeup_fd(-1)


@trusted
def _line_of(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)


class _HostHandler(logging.Handler):
    """Sends log records to the supervisor: the user's stderr is not the place for our own faults."""

    def __init__(self, link: framing.SupervisorLink) -> None:
        super().__init__(logging.WARNING)
        self.link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        self.link.send(worker_protocol.FATAL, (self.format(record).encode("utf-8", "replace"),))


def _log(link: framing.SupervisorLink) -> logging.Logger:
    log = logging.getLogger("rlm_kernel.worker")
    log.propagate = False
    log.addHandler(_HostHandler(link))
    return log


def _reply(reply: Mapping[str, Any]) -> CellReply:
    """The part of Jupyter's reply to a cell that the supervisor needs."""
    error = {name: str(reply[name]) for name in ("ename", "evalue") if name in reply}
    lines = tuple(map(str, reply.get("traceback") or ()))
    return CellReply(CellStatus(reply["status"]), reply.get("execution_count"), traceback=lines, **error)


def _failure(error: BaseException) -> Failure:
    """Describe a failed request to the supervisor. Of a user's exception only the message is evaluated."""
    kind = type(error)
    if issubclass(kind, KernelError | ContextError):
        told = to_wire(error)
        return Failure(str(told.pop("error")), str(told.pop("message")), told)
    said = "interrupted" if kind is KeyboardInterrupt else text_of(error)
    named = not issubclass(kind, ValueError | TypeError | OSError | KeyboardInterrupt)
    return Failure("KernelError", f"{name_of(kind)}: {said}" if named else said)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
