"""The supervisor's line to its keeper, which holds what must outlive it (`rlm_kernel.keeper.keeper`).

The supervisor holds the same itself, and starts another keeper when this one dies. So either may die at any time.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from rlm_ipc import discovery, framing
from rlm_ipc.late_dataclasses import dataclass
from rlm_kernel._immortal import make_immortal
from rlm_kernel.keeper import keeper
from rlm_kernel.supervisor.keeping.keeper_start import keeper_command

REAPED_SECONDS = 0.3
"""How long the keeper may take to report how one of its children ended."""

VAIN_STANDBYS = 3
"""After this many consecutive standby processes ended before they were ready, no other is started."""
_WAITS = b"w"
_STANDBY = keeper.STANDBY.decode()

ExitCallback = Callable[[int | None], None]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept under one name."""

    content: bytes
    descriptors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Standby:
    """The process that becomes the next supervisor: it waits at the other end of ``line``."""

    pid: int
    line: socket.socket


def stand_by(let_go: Callable[[], None]) -> Standby | tuple[socket.socket, int]:
    """Fork a process that waits to become the next supervisor; for a process with one thread.

    So nothing has to be imported when this one dies. In this process, return the other one; in the other, when its turn
    has come, return the line to the keeper and its generation. There ``let_go`` closes what belongs to this process
    alone.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # The two processes share what both have imported until one of them writes to it, and counting a reference is
    # writing.
    make_immortal(gc.get_objects())
    gc.freeze()
    if pid := os.fork():
        theirs.close()
        return Standby(pid, ours)
    ours.close()
    let_go()
    return await_turn(theirs)


def await_turn(line: socket.socket) -> tuple[socket.socket, int]:
    """Wait at the other end of ``line`` to become the next supervisor; a process that is no longer needed ends."""
    with suppress(OSError):
        line.send(_WAITS)
    data, descriptors = keeper.receive(line)
    if not descriptors:
        os._exit(0)
    line.close()
    return socket.socket(fileno=descriptors[0]), int(data)


def end_keeper(line: socket.socket) -> None:
    """End the keeper at the other end of the line, with everything that it holds."""
    line.sendall(keeper.QUIT)


class Keeping:
    """What is kept, by name. ``generation`` counts the supervisors; the first has 1 and starts with nothing.

    ``program`` is what the keeper starts as the next supervisor.
    """

    def __init__(self, line: socket.socket, generation: int, program: Sequence[str]) -> None:
        self.generation, self._program = generation, program
        self.entries: dict[str, Entry] = {}
        self.before_failed = False
        """Whether the previous supervisor failed by itself: someone else's SIGKILL is not a failure."""
        self._line = line
        self.keeper = discovery.peer(line).pid
        """The process of the keeper: it created the line, or continues the process that did."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serials = itertools.count((generation << 32) + 1)
        self._exits: dict[int, ExitCallback] = {}
        self._closed = False
        self._vain = 0
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        if generation > 1:
            self._fetch()
        else:
            self._introduce()

    def next_serial(self) -> int:
        """Return a number that no supervisor has returned before."""
        return next(self._serials)

    def put(self, name: str, descriptors: Iterable[int] = (), content: bytes = b"") -> None:
        """Keep copies of these descriptors, and these bytes, replacing what was kept under that name."""
        self._forget(name)
        copies = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0) for fd in descriptors)
        entry = self.entries[name] = Entry(content, copies)
        self._send(keeper.PUT + name.encode() + b"\0" + entry.content, copies)

    def drop(self, name: str) -> None:
        """Release what is kept under that name."""
        if name in self.entries:
            self._forget(name)
            self._send(keeper.DROP + name.encode())

    def _forget(self, name: str) -> None:
        if (old := self.entries.pop(name, None)) is not None:
            framing.close_all(old.descriptors)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin like this."""
        return [name for name in self.entries if name.startswith(prefix)]

    # -- the line

    def listen(self) -> None:
        """Serve the line in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._line.fileno(), self._readable)
        self._watch_standby()

    def follows(self, standby: Standby) -> None:
        """Announce to the keeper the process that becomes the next supervisor."""
        self.put(_STANDBY, (standby.line.fileno(),), b"%d" % standby.pid)
        standby.line.close()

    def _watch_standby(self) -> None:
        assert self._loop is not None
        (descriptor,) = self.entries[_STANDBY].descriptors
        self._loop.add_reader(descriptor, self._hear_standby, descriptor)

    def _hear_standby(self, descriptor: int) -> None:
        """Handle that the standby process waits for its turn, or has ended: then another one must wait."""
        assert self._loop is not None
        try:
            waits = os.read(descriptor, 1)
        except OSError:
            waits = b""
        if waits:
            self._vain = 0
            return
        self._let_standby_go()
        self._vain += 1
        if self._vain <= VAIN_STANDBYS:
            self._start_standby()

    def _let_standby_go(self) -> None:
        if self._loop is not None and _STANDBY in self.entries:
            self._loop.remove_reader(self.entries[_STANDBY].descriptors[0])
        self.drop(_STANDBY)

    def _start_standby(self) -> None:
        """Start a new standby process: this one has threads, and cannot be forked any more."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [*self._program, "--standby-fd", str(theirs.fileno())]
        try:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd="/")
        except OSError:  # the keeper starts the next supervisor when its time has come
            ours.close()
            return
        finally:
            theirs.close()
        self.follows(Standby(process.pid, ours))
        self._watch_standby()

    def serves(self) -> None:
        """Report that this supervisor serves, so that its successor is started at once."""
        self._send(keeper.SERVES)
        self.beat()

    def beat(self) -> None:
        """Report that this supervisor is alive; one that stops reporting is replaced."""
        self._send(keeper.ALIVE)

    def hand_over(self, program: Sequence[str]) -> None:
        """Make the keeper start that program as the next supervisor, as soon as this one has ended."""
        self._program = program
        self._let_standby_go()
        self._introduce()

    def quit(self) -> None:
        """End the keeper: this supervisor ends on purpose."""
        self._closed = True
        if self._loop is not None:
            self._loop.remove_reader(self._line.fileno())
        self._let_standby_go()
        self._send(keeper.QUIT)

    def when_reaped(self, pid: int, callback: ExitCallback) -> None:
        """Call back with the exit status of an ended process that is not our child; None if it is unknown."""
        assert self._loop is not None
        self._exits[pid] = callback
        self._loop.call_later(REAPED_SECONDS, self._reaped, pid, None)

    def _reaped(self, pid: int, status: int | None) -> None:
        if (callback := self._exits.pop(pid, None)) is not None:
            callback(status)

    def _send(self, data: bytes, descriptors: Sequence[int] = ()) -> None:
        with suppress(OSError):  # its end is read soon, and the next one gets everything
            socket.send_fds(self._line, [data], descriptors)

    def _introduce(self) -> None:
        pidfd = os.pidfd_open(os.getpid())
        words = b"\0".join(map(os.fsencode, self._program))
        self._send(keeper.GENERATION + b"%d\0" % self.generation + words, (pidfd,))
        os.close(pidfd)

    def _fetch(self) -> None:
        """Take everything over from the previous supervisor; waits for it."""
        while True:
            data, descriptors = keeper.receive(self._line)
            if data == keeper.ALL:
                return
            if data == keeper.FAILED:
                self.before_failed = True
            if not data:
                sys.exit("the keeper is gone, with everything that it held")
            if data.startswith(keeper.PUT):
                name, _, content = data[1:].partition(b"\0")
                self.entries[name.decode()] = Entry(content, tuple(descriptors))

    def _readable(self) -> None:
        try:
            data, _ = keeper.receive(self._line, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._replace()
        elif data.startswith(keeper.EXITED):
            pid, status = data[1:].split()
            self._reaped(int(pid), int(status))

    def _replace(self) -> None:
        """Start another keeper after this one has died, and give it everything."""
        assert self._loop is not None
        self._loop.remove_reader(self._line.fileno())
        self._line.close()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        argv, passed = keeper_command(theirs.fileno()), (theirs.fileno(),)
        self.keeper = subprocess.Popen(argv, stdin=subprocess.DEVNULL, pass_fds=passed, cwd="/").pid
        theirs.close()
        # What is in the socket is safe even if we die now.
        self._introduce()
        self.serves()
        for name, entry in self.entries.items():
            self._send(keeper.PUT + name.encode() + b"\0" + entry.content, entry.descriptors)
        self._loop.add_reader(self._line.fileno(), self._readable)
