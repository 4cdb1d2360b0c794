"""The loop of a kernel process: requests of the host in, Jupyter messages out, and fork.

Fork is one message (``FORK``), and three things: from the warm zygote a new session, from a session between two cells
a child session, and a dormant copy (a checkpoint) that sleeps in ``recvmsg`` until it is woken to take over.
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
import time
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from IPython.core.profiledir import ProfileDir
from tornado.ioloop import IOLoop
from traitlets.config import Config

from rlm_kernel import process, signals, tags, wire
from rlm_kernel.contexts.errors import ContextError
from rlm_kernel.contexts.keeping import KEEPER
from rlm_kernel.errors import KernelError, to_wire
from rlm_kernel.image import branch, requests, session, tasks
from rlm_kernel.image.immortal import immortalize
from rlm_kernel.image.kernel import SessionKernel, interruptible
from rlm_kernel.image.repeatable import repeatable
from rlm_kernel.image.stdio import LinkSession, LinkSocket, TextStream
from rlm_kernel.image.suspend import Suspension
from rlm_kernel.image.traceback import name_of, text_of
from rlm_kernel.image.variables import changed, identities, prune
from rlm_sandbox.language.audit import refusals, trusted
from rlm_sandbox.language.shims_system import new_loop
from rlm_sandbox.oswall import private, rlimits
from rlm_sandbox.oswall.confine import Isolation, isolate

if TYPE_CHECKING:
    from rlm_sandbox.policy_model import Policy

_KEPT: list[object] = []
_FIRST = 1
"""Who takes the orphans among process numbers of their own."""


class Worker:
    """One kernel image. ``supervisor`` is the pid of the host, the parent of every image, as it is numbered there."""

    def __init__(self, sock: socket.socket, supervisor: int) -> None:
        self.link = wire.Link(sock)
        self.parents: tuple[int, ...] = (supervisor,)
        self.dormant = False
        self.session: session.SessionState | None = None
        self._alone = True
        """Only cells change the session: none has left a task or a thread that went on after it."""
        self._refused = (0, 0)
        """Attempts that the audit hook, and cells that the compiler had refused when the host was last told of them."""
        self._expected = ""
        self._isolation: Isolation | None = None
        self._seclusion: private.Seclusion | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.stdout, self.stderr = TextStream(self.link, tags.STDOUT), TextStream(self.link, tags.STDERR)
        self.sockets = {tag: LinkSocket(self.link, tag) for tag in (tags.SHELL, tags.CONTROL, tags.IOPUB, tags.STDIN)}
        self.kernel = self._build_kernel()
        self.suspension = Suspension(self.link, in_cell=lambda: self.kernel.in_cell)

    def _build_kernel(self) -> SessionKernel:
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        home = tempfile.mkdtemp(prefix="rlm-ipython-")
        os.environ["IPYTHONDIR"] = self._home = home
        kernel: SessionKernel = SessionKernel.instance(
            config=config,
            session=LinkSession(self.link, check_pid=False, key=b""),
            profile_dir=ProfileDir.create_profile_dir(home),
            iopub_socket=self.sockets[tags.IOPUB],
            shell_stream=self.sockets[tags.SHELL],
            control_stream=self.sockets[tags.CONTROL],
            stdin_channel=self.sockets[tags.STDIN],
            receive_input=self._input,
            on_abort=lambda: self.link.send(tags.ABORT),
            hold=self.link.hold,
            log=_log(self.link),
            user_ns={},
        )
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
        """Run the paths of a first cell once, so that every fork has them in memory; then forget what they left.

        ``expected`` is the policy by which forks make ready for a session.
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
        immortalize()
        gc.collect()
        gc.freeze()
        process.trim_heap()

    def _forget_cells(self) -> None:
        self.kernel.shell.reset(new_session=True)
        self.kernel.shell.execution_count = 1

    @contextmanager
    def _muted(self) -> Iterator[None]:
        """Run cells that nobody is to hear of, and that take no interrupt that is meant for another one."""
        send, self.link.send = self.link.send, lambda *_args, **_options: None  # type: ignore[method-assign]
        self.kernel.deaf = True
        try:
            yield
        finally:
            self.kernel.deaf = False
            self.link.send = send  # type: ignore[method-assign]
            self.link.hold(False)

    def hello(self, news: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Tell the host that this process is there, with ``news``: what a fork has left behind where it comes from."""
        self.link.send(tags.HELLO, (wire.json_frame({"pid": os.getpid(), **news}),))

    def serve(self) -> NoReturn:
        """Serve the host until it goes away. A fault of our own is reported to the host before the process ends."""
        try:
            while self._turn():
                pass
        except MemoryError:
            os._exit(process.EXIT_MEMORY)
        except BaseException:
            self.link.hold(False)
            self.link.send(tags.FATAL, (traceback.format_exc().encode("utf-8", "replace"),))
            os._exit(process.EXIT_FAULT)
        os._exit(0)

    def _turn(self) -> bool:
        """Take one message; False when the host has gone."""
        message = self._next()
        if message is not None:
            self._handle(message)
        return message is not None

    def _handle(self, message: wire.Message) -> None:
        if message.tag == tags.CELL:
            cell = json.loads(message.frames[0])
            self._attend(self.kernel.run_cell(cell), repeatable=self._can_repeat(cell))
        elif message.tag == tags.INTERRUPT:
            self.kernel.interrupted = True
        elif message.tag in (tags.SHELL, tags.CONTROL):
            self._attend(self.kernel.dispatch(self.sockets[message.tag], message.frames))
        elif message.tag == tags.REQUEST:
            self._answer(message)
        elif message.tag == tags.FORK:
            self._fork(message)
        elif message.tag == tags.BEGIN:
            self._begin(json.loads(message.frames[0]))
        elif message.tag == tags.BRANCH:
            branch.begin(self, json.loads(message.frames[0]))
        elif message.tag == tags.WAKE:
            self._wake(json.loads(message.frames[0]))
        elif message.tag == tags.SETTLED:
            self._settled(message)

    def _settled(self, message: wire.Message) -> None:
        """Answers for a cell that waited when they were sent, and does so no more."""
        if self.session is not None:
            with session.user_code(self.session):  # also while `input` waits, in the middle of the wall's own work
                self.session.settle(self.namespace, json.loads(message.frames[0]))

    def _input(self) -> wire.Message | None:
        """Wait for an answer on the stdin channel; None when the host has gone."""
        while (message := self.link.receive()) is not None and message.tag != tags.STDIN:
            if message.tag == tags.SETTLED:
                self._settled(message)
        return message

    def _next(self) -> wire.Message | None:
        """The next message. While the user's tasks are pending they go on running; the host's word ends the wait."""
        loop = self.loop
        if loop is not None and not self.dormant and self.link.parser.empty and tasks.pending(loop):
            readable = loop.create_future()
            loop.add_reader(self.link.socket.fileno(), _set, readable)
            try:
                with session.user_code(self.session):
                    tasks.run(loop, readable)
            finally:
                loop.remove_reader(self.link.socket.fileno())
        return self.link.receive()

    # -- requests

    def _can_repeat(self, cell: Mapping[str, Any]) -> bool:
        walled = self.session is not None and self.session.wall is not None
        return self._alone and walled and repeatable(cell["code"], self.namespace, self.hidden)

    def repeat(self, cell: Mapping[str, Any]) -> bool:
        """Run a repeatable cell again for what it does to the session, unheard; whether it went as the first time."""
        assert self.loop is not None
        with self._muted():
            reply = tasks.run(self.loop, self.kernel.run_cell(dict(cell)))
        self._prune()
        return bool(reply["status"] == "ok")

    def _attend(self, work: Coroutine[Any, Any, dict[str, Any] | None], *, repeatable: bool = False) -> None:
        """Do the work of one request, and tell the host that it is done: with the reply of a cell, if it is one."""
        assert self.loop is not None
        before, reply, began = identities(self.namespace), None, time.process_time()
        self.link.hold(True)
        try:
            reply = tasks.run(self.loop, work)
        finally:
            self.kernel.interrupted = False
            self._prune()
            self._alone = self._alone and not tasks.pending(self.loop) and process.thread_count() <= 1
            seconds = time.process_time() - began if repeatable and self._alone else None
            done = {"reply": reply, "repeatable": seconds, **self._summary(before)}
            self.link.send(tags.DONE, (wire.json_frame(done),))
            self.link.hold(False)

    def _prune(self) -> None:
        KEEPER.release()
        with session.user_code(self.session), suppress(BaseException):  # a key may raise when it is compared
            if self.session is not None:
                self.session.rebind(self.namespace)
            prune(self.namespace, self.kernel.shell.history_manager, self.kernel.execution_count)

    def _summary(self, before: Mapping[str, int]) -> dict[str, Any]:
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
        return {
            "given": given,
            "defined": defined,
            "shadowed": shadowed,
            "returned": sorted(returned),
            "refused": [now - before for now, before in zip(self._refused, told, strict=True)],
        }

    def _answer(self, message: wire.Message) -> None:
        request = json.loads(message.frames[0])
        try:
            with interruptible():
                content, blobs = requests.handle(self, request, message)
            reply = wire.json_frame({"status": "ok", **content})
        except BaseException as error:  # whatever a ``__repr__`` of the user's raises
            reply, blobs = wire.json_frame({"status": "error", **_failure(error)}), ()
        self.link.send(tags.ANSWERED, (reply, *blobs))

    # -- fork

    def _fork(self, message: wire.Message) -> None:
        """Fork a child that owns the descriptor sent along; it waits for a session, or sleeps."""
        request = json.loads(message.frames[0])
        threads = branch.other_threads()
        if threads and not request.get("leave_threads"):
            message.close()
            self.link.send(tags.FORKED, (wire.json_frame({"error": "the session has threads", "threads": threads}),))
            return
        left = {"threads": threads, "tasks": len(tasks.pending(self.loop))}
        seclusion = self._seclusion_to_come() if request.get("private") else None
        # A signal that meets the call while the host is asked about it would end it, or make it run twice.
        blocked = signals.set_mask(signal.SIG_BLOCK, signals.ALL)
        still = message.descriptors[0] if request.get("still") else None
        pause = None if threads or request.get("expectant") or still is None else self._pause(still, blocked)
        self.link.hold(True)  # what runs in the copy before it has a line of its own must not write to this one
        try:
            pid = (
                self._fork_leaving_threads()
                if threads
                else process.fork_sibling(still=still, first=self._greeting(still), pause=pause)
            )
        except (OSError, MemoryError) as error:
            message.close()
            refused = {"error": str(error), "errno": getattr(error, "errno", None)}
            self.link.send(tags.FORKED, (wire.json_frame(refused),))
            self.link.hold(False)
            return
        finally:
            signals.set_mask(signal.SIG_SETMASK, blocked)
        if pid:
            if pause is None:
                message.close()
                self.link.send(tags.FORKED, (wire.json_frame({"pid": pid}),))
            self.link.hold(False)
            if request.get("expectant"):
                self._touch_pages()
        else:
            if seclusion is not None:
                self._seclude(seclusion, message.descriptors[1])
            self._become_child(message.descriptors[0], request, left)

    def _seclusion_to_come(self) -> private.Seclusion:
        return private.Seclusion(Path(self._home), private.try_out(os.geteuid()))

    def _seclude(self, seclusion: private.Seclusion, lease: int) -> None:
        """In a fork of the zygote: go on in a further one, with process numbers of its own, if the system allows."""
        self._seclusion = seclusion
        if not seclusion.refusal:
            private.leave_processes()
            if process.fork_sibling(still=lease, first=partial(private.lower_first, lease)) == 0:
                os._exit(0)
            if process.fork_sibling() != 0:
                os._exit(0)
            self.parents = process.PARENT_OUTSIDE, _FIRST
        os.close(lease)

    def _greeting(self, still: int | None) -> Callable[[], object] | None:
        """What a copy that keeps still does first: in a private session it speaks, for the host to learn its number."""
        if still is None or self._seclusion is None:
            return None
        return partial(os.write, still, wire.pack(tags.HELLO, (b"{}",)))

    @trusted
    def _fork_leaving_threads(self) -> int:
        return process.fork_leaving_threads()

    def _pause(self, still: int, held: Iterable[int]) -> Callable[[int], None] | None:
        """What leaves a copy its line ``still``, tells the host of it and waits for the host's next word.

        None while there is something else to do.
        """
        if self.dormant or not self.link.parser.empty or self.loop is None or tasks.pending(self.loop):
            return None
        self.link.hold(False)
        head, descriptor = wire.pack(tags.FORKED, (b'{"pid":%10d}' % 0,))[:-11], self.link.socket.fileno()
        wait = process.wait_for(descriptor, held)

        def pause(pid: int) -> None:
            os.close(still)
            os.write(descriptor, head + b"%10d}" % pid)
            wait()

        return pause

    def _become_child(self, descriptor: int, request: dict[str, Any], left: dict[str, Any]) -> None:
        self.link.move(_line_of(descriptor))
        self._drop_loop()
        process.adopted_by(self.parents)
        self.dormant = request["state"] == "sleep"
        if not self.dormant:
            self.activate()
        if request["state"] == "warm":
            self._make_ready()
        self.hello(left)

    def _make_ready(self) -> None:
        """In a fork of the zygote: do ahead what does not depend on the session that is to come, but for its kind.

        That is one whose cells are compiled under a policy, without a network. A cell is rehearsed behind the language
        wall: pages that the system copies now it need not copy while somebody waits.
        """
        session.settle_in()
        with self._muted():
            self.session = self._any_session()
            self.session.raise_language_wall(self.kernel.shell, (self.stdout, self.stderr))
            self.use_streams()
            self._handle(wire.Message(tags.CELL, (wire.json_frame({"code": "1+1", "store_history": True}),)))
        self.session = None
        self._forget_cells()
        self._isolation = isolate(self._descriptors(), network=False, seclusion=self._seclusion)

    def _any_session(self) -> session.SessionState:
        spec = {"policy": self._expected, "scratch": "/", "protect": (), "query_base": 1}
        return session.SessionState(spec, self._announce, self.suspension)

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
            tasks.run(loop, self.kernel.run_cell({"code": "pass", "store_history": False}))

    def _begin(self, spec: dict[str, Any]) -> None:
        """Become a session: take its policy, raise the walls, and say which stand."""
        try:
            state = session.SessionState(spec, self._announce, self.suspension)
            self.session = state
            streams, keep = (self.stdout, self.stderr), self._descriptors()
            report, descriptors = state.begin(self.kernel.shell, streams, keep, self._isolation, self._seclusion)
            self.use_streams()
        except Exception as error:
            self.link.send(tags.BEGUN, (wire.json_frame({"error": f"{type(error).__name__}: {error}"}),))
            os._exit(1)
        with rlimits.handing_over(state.policy):
            self.link.send(tags.BEGUN, (wire.json_frame({"walls": report}),), descriptors)
        for fd in descriptors:
            os.close(fd)
        state.close_wall()

    def _descriptors(self) -> list[int]:
        """What this process goes on using: its line to the host and its event loop."""
        loop: Any = self.loop
        return [
            0,
            1,
            2,
            self.link.socket.fileno(),
            *(s.fileno() for s in (loop._selector, loop._ssock, loop._csock)),
        ]

    def _announce(self, queries: list[dict[str, Any]]) -> None:
        self.link.send(tags.QUERY, (wire.json_frame({"queries": queries}),))

    def _wake(self, news: Mapping[str, Any]) -> None:
        self.activate()
        if self.session is not None:
            self.session.queries.skip_to(news["query_base"])
        self.link.send(tags.WOKEN)

    def activate(self) -> None:
        """Become a process that serves: a counter, an event loop and streams of its own."""
        self.dormant = False
        self.kernel.session.message_count = 0
        self._new_loop()
        self.use_streams()
        self.kernel.shell.exit_now = False

    def use_streams(self) -> None:
        """Let prints go where the session's wall has them go."""
        walled = self.session.streams if self.session is not None else None
        streams = walled or (self.stdout, self.stderr)
        sys.stdout, sys.stderr = self.kernel._stdout, self.kernel._stderr = streams

    def _new_loop(self) -> None:
        self.loop = new_loop()
        asyncio.set_event_loop(self.loop)
        self.kernel.io_loop = IOLoop.current()

    def _drop_loop(self) -> None:
        """In the child of a fork: let go of the event loop, whose epoll is the parent's too, without touching it."""
        loop = self.loop
        if loop is not None and not loop.is_closed():
            _KEPT.extend(tasks.forget(loop))
            for fd in (loop._selector.fileno(), loop._ssock.fileno(), loop._csock.fileno()):  # type: ignore[attr-defined]
                os.close(fd)
        self.loop = None
        asyncio.set_event_loop(None)
        signal.set_wakeup_fd(-1)


@trusted
def _line_of(descriptor: int) -> socket.socket:
    return socket.socket(fileno=descriptor)


class _HostHandler(logging.Handler):
    """Sends log records to the host: the person's stderr is not the place for our own faults."""

    def __init__(self, link: wire.Link) -> None:
        super().__init__(logging.WARNING)
        self.link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        self.link.send(tags.FATAL, (self.format(record).encode("utf-8", "replace"),))


def _log(link: wire.Link) -> logging.Logger:
    log = logging.getLogger("rlm_kernel.image")
    log.propagate = False
    log.addHandler(_HostHandler(link))
    return log


def _failure(error: BaseException) -> dict[str, object]:
    """What the host is told of a request that failed; nothing is asked of an error of the user's but its message."""
    kind = type(error)
    if issubclass(kind, KernelError | ContextError):
        return to_wire(error)
    said = "interrupted" if kind is KeyboardInterrupt else text_of(error)
    named = not issubclass(kind, ValueError | TypeError | OSError | KeyboardInterrupt)
    return {"error": "KernelError", "message": f"{name_of(kind)}: {said}" if named else said}


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
