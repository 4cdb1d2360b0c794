"""One kernel process as the supervisor sees it: its lifeline, its stream, its pidfd, and how it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol, TypeVar

from rlm_ipc import framing, worker_protocol
from rlm_ipc.errors import KernelError, ProtocolError
from rlm_ipc.framed_stream import Stream, Unfinished
from rlm_ipc.outcomes import NoCopy
from rlm_kernel.supervisor.keeping.held_pipes import Space, Tether
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.processes.kernel_json import parse
from rlm_kernel.supervisor.processes.proc_status import ignores_interrupts, parent_of

MAX_KERNEL_PAYLOAD = 512 << 20
MOST_UNFINISHED = 2 * MAX_KERNEL_PAYLOAD
"""Maximum bytes of incomplete messages, of all kernel processes together."""
MAX_WORD = 1 << 20
"""Maximum bytes of one message from a process that serves no session yet: a zygote, or a sleeping copy."""

log = logging.getLogger(__name__)

M = TypeVar("M")


class ForkRefused(KernelError):
    """A process cannot be copied now: ``why``. ``threads`` are in the way, or the system refuses (``errno``)."""

    def __init__(
        self, reason: str, threads: Sequence[str] = (), errno: int | None = None, why: NoCopy = NoCopy.REFUSED
    ) -> None:
        self.threads, self.errno, self.why = list(threads), errno, why
        self.detail = ", ".join(threads) or reason
        super().__init__(f"{reason}: {', '.join(self.threads)}" if threads else reason)


class PeerDied(Exception):
    """The process ended while something was expected of it."""


class LinkOwner(Protocol):
    """Receiver of a process's messages and death; a session implements it (`session.SupervisedSession`)."""

    def heard(self, link: WorkerLink, message: framing.Message) -> None:
        """Handle a message that nobody waits for."""
        ...

    def died(self, link: WorkerLink) -> None:
        """Handle, once, that the process has ended, after everything that it had written was delivered."""
        ...


class WorkerLink:
    """A kernel process (or the zygote). Everything it sends is hostile input.

    A caller that makes it fork through a gate holds ``forking``. A kernel sends a single descriptor, its gate's, with
    `worker_protocol.Started`; any other is closed. The incomplete messages of all processes that were forked from one
    another count together in ``unfinished``. A process in a pid namespace (``space``) is identified by the number that
    the system attaches to what it writes.

    A process has a ``lifeline`` for its whole life, and gets the line of each supervisor through it (`attach`). A
    sleeping one has no line yet. ``keeping`` has the keeper hold the lifeline for a later supervisor (`keep`).
    """

    _taken: ClassVar[set[int]] = set()

    def __init__(
        self,
        lifeline: socket.socket,
        keeping: Keeping,
        unfinished: Unfinished,
        space: Space | None = None,
        parent: WorkerLink | None = None,
    ) -> None:
        self.lifeline, self.keeping, self.unfinished, self.space = lifeline, keeping, unfinished, space
        self.key: str = ""  # its name at the keeper
        self.is_zygote = False
        self.tether: Tether | None = parent.tether.share() if parent and parent.tether else None
        self.protocol: int = worker_protocol.PROTOCOL if parent is None else parent.protocol
        self._source = (None, False) if parent is None else (parent.pid, parent.is_zygote)
        self.loop = asyncio.get_running_loop()
        self.pid: int | None = None
        self.status: int | None = None
        self.stopped_for = ""
        """Why the supervisor ended the process, in words; empty if it did not."""
        self.dead = False
        self.handshake = worker_protocol.Handshake()
        self.attached: dict[str, int] = {}
        self.forking = asyncio.Lock()
        self._owner: LinkOwner | None = None
        self._pidfd: int | None = None
        self._parent = 0
        self._waiting: dict[bytes, deque[asyncio.Future[Any]]] = defaultdict(deque)
        self._stream: Stream | None = None

    @classmethod
    def gone(cls, keeping: Keeping, unfinished: Unfinished) -> WorkerLink:
        """Return the link of a process that ended before this supervisor started."""
        lifeline = socket.socket(socket.AF_UNIX)
        lifeline.close()
        link = cls(lifeline, keeping, unfinished)
        link.dead = True
        return link

    def take_over(self, pid: int, pidfd: int, *, dead: bool) -> None:
        """Take over the link to a process of another supervisor, which may have ended since."""
        self.pid, self._pidfd, self._parent = pid, pidfd, parent_of(pid) or 0
        if dead:
            os.close(pidfd)
            self._pidfd = None
            self._finish()
            return
        self._taken.add(pid)
        self.loop.add_reader(pidfd, self._ended)

    @property
    def stream(self) -> Stream:
        """Its line to this supervisor; a sleeping process wakes when it gets the line."""
        return self._stream or self.attach()

    @property
    def failure(self) -> ProtocolError | None:
        """What was wrong with what it has sent, if that ended it."""
        return None if self._stream is None else self._stream.failure

    def attach(self) -> Stream:
        """Give the process its line."""
        try:
            ours, theirs = framing.pair()
        except OSError as error:  # no descriptor is left: nobody can say anything to it
            self.kill()
            raise PeerDied(None) from error
        if self.space is not None and self.pid is None:
            framing.tell_senders(ours, True)
        self._stream = Stream(ours, self._message, self._stream_closed, MAX_WORD, 1, self.unfinished)
        with theirs, suppress(OSError):  # the pidfd or the line reports its end
            framing.give_line(self.lifeline, theirs, self.keeping.generation)
        return self._stream

    def begin(self, *, asleep: bool) -> None:
        """Give its line to a process that is about to be forked, unless it will sleep."""
        if not asleep:
            self.attach()
        elif self.space is not None:
            self._await_greeting()

    def _await_greeting(self) -> None:
        """Learn the first message's sender from the system: a sleeping process may have its own process numbers."""
        framing.tell_senders(self.lifeline, True)
        self.loop.add_reader(self.lifeline.fileno(), self._greeted)

    def _greeted(self) -> None:
        self.loop.remove_reader(self.lifeline.fileno())
        waiting = self._waiting.pop(worker_protocol.Handshake.TAG, None)
        sender = framing.sender_of(self.lifeline)
        framing.tell_senders(self.lifeline, False)
        if not self.watch(sender):
            self._finish()
        for future in waiting or ():
            if not future.done():
                future.set_result(framing.Message(b"", ()))

    def new_tether(self) -> tuple[int, ...]:
        """Return a descriptor through which the system ends its process group when supervisor and keeper are gone."""
        if self.pid is None:
            return ()
        before, self.tether = self.tether, Tether(self.pid)
        if before is not None:
            before.release()
        return (self.tether.hand_over(),)

    def keep_process(self) -> None:
        """`keep` a process of a session."""
        self.keep(f"process/{self.pid}-{self.keeping.next_serial()}")

    def keep(self, name: str) -> None:
        """Have the keeper hold what a later supervisor needs to find this process, under only that name."""
        if self._pidfd is None:
            return
        if self.key != name:
            self.keeping.drop(self.key)
        self.key = name
        pipes = (pipe.held for pipe in (self.tether, self.space) if pipe is not None)
        self.keeping.put(name, (self.lifeline.fileno(), self._pidfd, *pipes), b"%d %d" % (self.pid or 0, self.protocol))

    def expect(self, tag: bytes) -> asyncio.Future[Any]:
        """Return the next message with ``tag``. Fails with `PeerDied`."""
        future: asyncio.Future[Any] = self.loop.create_future()
        if self.dead:
            future.set_exception(PeerDied(self.status))
        else:
            self._waiting[tag].append(future)
        return future

    def send(self, tag: bytes, parts: tuple[framing.Frame, ...] = (), descriptors: tuple[int, ...] = ()) -> None:
        """Send; do nothing for a dead process (`on_death` reports its end)."""
        self.stream.send(tag, parts, descriptors)

    def say(self, message: worker_protocol.Tagged, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message that has fields; do nothing for a dead process."""
        tag, part = worker_protocol.encode(message)
        self.stream.send(tag, (part,), descriptors)

    def watch(self, pid: object) -> bool:
        """Follow the process ``pid``, a number that a kernel has sent. Return False if this link may not own it.

        The number is hostile input. It must be a child of this process and belong to no other link. Otherwise a kernel
        could name another session's process, and have that one killed in place of its own.
        """
        if not isinstance(pid, int) or pid in self._taken:
            return False
        # A pidfd stays with the process, whereas a pid passes to another one as soon as this one is reaped. It is
        # opened before the check, so that the check is about the process that the descriptor means.
        try:
            pidfd = os.pidfd_open(pid)
        except (ProcessLookupError, OverflowError, ValueError, OSError):
            return False
        parent = parent_of(pid)
        if not self._is_ours(pid, parent):
            os.close(pidfd)
            return False
        self.pid, self._pidfd, self._parent = pid, pidfd, parent or 0
        # Two links to one process would reap each other's exit status.
        self._taken.add(pid)
        self.loop.add_reader(pidfd, self._ended)
        return True

    def _is_ours(self, pid: int, above: int | None) -> bool:
        """Return whether its parent ``above`` is this process, the keeper, or the init process of its pid namespace.

        Otherwise it must be in the Unix session of the kernel that forked, which holds no other process of ours.
        """
        us, (source, of_zygote) = {os.getpid(), os.getppid()}, self._source
        known = {*us, parent_of(source)} if source is not None and of_zygote else us
        if above in known or (self.space is not None and above and parent_of(above) in known):
            return pid not in us
        with suppress(OSError):
            return source is not None and os.getsid(pid) == os.getsid(source)
        return False

    def report_to(self, owner: LinkOwner | None) -> None:
        """Report this process to ``owner`` from now on, or to nobody."""
        self._owner = owner

    def serve(self) -> None:
        """Accept large messages from now on: the process serves a session."""
        self.stream.parser.max_payload = MAX_KERNEL_PAYLOAD

    def signal(self, number: int) -> None:
        """Send a signal. It can never reach a later process with the same pid."""
        if self._pidfd is not None and not self.dead:
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                pass

    def interrupt(self) -> bool:
        """Interrupt the process. Return False while it ignores interrupts, as between two cells."""
        if self.pid is not None and ignores_interrupts(self.pid):
            return False
        self.signal(signal.SIGINT)
        return True

    @property
    def held_up(self) -> bool:
        """Return whether something between two cells keeps the process from reading its messages."""
        return self.pid is not None and self.stream.unread and ignores_interrupts(self.pid)

    def kill(self) -> None:
        """End the process at once."""
        self.signal(signal.SIGKILL)
        if self.pid is None and not self.dead:
            if self._stream is None:
                self._finish()
            else:
                self._stream.close()

    def drop(self) -> None:
        """End it, and no longer listen."""
        self._owner = None
        self.kill()

    # -- what arrives

    def _message(self, message: framing.Message) -> None:
        if message.descriptors and message.tag != worker_protocol.Started.TAG:
            message.close()
            message = framing.Message(message.tag, message.parts)
        if message.tag == worker_protocol.Handshake.TAG and self.pid is None and not self._introduced(message):
            self.stream.close()
            return
        if waiting := self._waiting[message.tag]:
            future = waiting.popleft()
            if future.done():  # its caller gave up; a late answer must not count as the answer to the next question
                message.close()
            else:
                future.set_result(message)
        else:
            message.close()
            if self._owner is not None:
                self._deliver(self._owner, message)

    def _deliver(self, owner: LinkOwner, message: framing.Message) -> None:
        try:
            owner.heard(self, message)
        except Exception:
            # No message of an honest kernel gets here. A hostile one that could do this repeatedly could fill the log.
            log.exception("a message from process %s failed in the supervisor; the process is killed", self.pid)
            self.kill()

    def _introduced(self, message: framing.Message) -> bool:
        self.handshake = heard(worker_protocol.Handshake, message) or worker_protocol.Handshake()
        if self.space is None:
            return self.watch(self.handshake.pid)
        framing.tell_senders(self.stream.socket, False)
        return self.watch(self.stream.parser.sender)

    # -- its end

    def _stream_closed(self) -> None:
        """Handle the end of the line: the process has ended and was read to the end, or it broke the protocol."""
        if self._pidfd is None:
            self._finish()
        else:
            # A process without a line can neither work nor be asked anything. The pidfd reports its end.
            self.signal(signal.SIGKILL)

    def _ended(self) -> None:
        assert self._pidfd is not None
        self.loop.remove_reader(self._pidfd)
        try:
            info = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            if self._parent == self.keeping.keeper:  # it is about to reap the process
                self.keeping.when_reaped(self.pid or 0, self._ended_with)
                return
            info = None
        status = None if info is None else info.si_status
        self._ended_with(-status if info is not None and status and info.si_code != os.CLD_EXITED else status)

    def _ended_with(self, status: int | None) -> None:
        assert self._pidfd is not None
        self.status = status
        os.close(self._pidfd)
        self._pidfd = None
        self._taken.discard(self.pid or 0)
        # What it wrote before it died is still in the socket: read it all, so that no printed line is lost.
        if self._stream is None or self._stream.closed:
            self._finish()
        else:
            self._stream.finish()

    def _finish(self) -> None:
        if self.dead:
            return
        self.dead = True
        self.loop.remove_reader(self.lifeline.fileno())
        self.lifeline.close()
        self.keeping.drop(self.key)
        for pipe in (self.tether, self.space):
            if pipe is not None:
                pipe.release()
        self.tether = self.space = None
        for waiting in self._waiting.values():
            for future in waiting:
                if not future.done():
                    future.set_exception(PeerDied(self.status))
        self._waiting.clear()
        if self._owner is not None:
            self._owner.died(self)


def heard(kind: type[M], message: framing.Message) -> M | None:
    """Decode a message of that kind; None if a hostile kernel sent something else, or more than fits into memory."""
    try:
        return worker_protocol.decode(kind, message.parts[0], parse)
    except (ProtocolError, IndexError):
        return None
