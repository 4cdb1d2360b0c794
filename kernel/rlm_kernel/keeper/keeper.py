r"""``python -I -S keeper.py FD [SECONDS]``: holds descriptors by name, and starts a supervisor whenever there is none.

It parses nothing of a session. It imports none of our packages, and no module of the standard library that loads `enum`
or `selectors`, so it needs a fifth of a supervisor's memory. A supervisor starts it, and starts another one when it
dies. ``FD`` is its line to that supervisor: single packets (SOCK_SEQPACKET) with descriptors.

    P name\0bytes   hold these descriptors and bytes under this name, replacing the previous ones
    D name          release them
    G number\0argv  the supervisor's generation and program, with its pidfd. The first packet of all
    W               the supervisor serves
    A               the supervisor is alive. If a program has said so and then is silent, it hangs: it is killed
    Q               the supervisor ends on purpose: end, too

A supervisor of a later generation first gets every entry (``P``, as it was sent), ``F`` if the previous one failed or
hung and nobody else killed it, and then ``.``. Each gets ``X pid status`` when a child of the keeper has ended. A
supervisor counts as hung if it is silent ``SILENCES`` times for ``SECONDS``.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import _struct
import os
import select
import sys
import time

PUT, DROP, GENERATION, SERVES, ALIVE, QUIT = b"P", b"D", b"G", b"W", b"A", b"Q"
"""Packets from a supervisor."""
ALL, EXITED, FAILED = b".", b"X", b"F"
"""Packets from the keeper, besides `PUT`."""
LARGEST_PACKET = 1 << 16
MOST_DESCRIPTORS = 64
STANDBY = b"standby"
"""The entry of a process that becomes the next supervisor at once: it reads the new line from its descriptor."""
VAIN_STARTS = 4
"""After this many supervisors that never served, the next ones are started with growing delays."""
LONGEST_PAUSE = 5.0
SILENCES = 6
SILENCE_SECONDS = 5.0
"""Several short times instead of one long time, which would have passed when the whole machine was suspended."""
_INT = _struct.calcsize("i")


def send(line: _socket.socket, data: bytes, descriptors: tuple[int, ...] = ()) -> bool:
    """Send a packet. Return False if nobody is there to take it."""
    beside = _struct.pack(f"{len(descriptors)}i", *descriptors)
    try:
        line.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, beside)] if descriptors else [])
    except OSError:
        return False
    return True


def receive(line: _socket.socket, flags: int = 0) -> tuple[bytes, tuple[int, ...]]:
    """Receive a packet and its descriptors, all or none; an empty one at the end of the line."""
    room = _socket.CMSG_SPACE(MOST_DESCRIPTORS * _INT)
    flags |= _socket.MSG_CMSG_CLOEXEC
    try:
        data, beside, received_flags, _ = line.recvmsg(LARGEST_PACKET, room, flags)
    except ConnectionResetError:
        # The peer died before it had read everything. The system reports that first, and then delivers what it had
        # written.
        data, beside, received_flags, _ = line.recvmsg(LARGEST_PACKET, room, flags)
    descriptors: tuple[int, ...] = ()
    for level, kind, packed in beside:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            descriptors += _struct.unpack(f"{len(packed) // _INT}i", packed[: len(packed) // _INT * _INT])
    if received_flags & _socket.MSG_CTRUNC:  # there was no room for them all in this process
        for descriptor in descriptors:
            os.close(descriptor)
        descriptors = ()
    return data, descriptors


def has_ended(pidfd: int) -> bool:
    """Return whether a process has ended.

    Not by ``select``, which takes no descriptor above 1023: here there are many.
    """
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def pid_of(pidfd: int) -> int:
    """Return the number of a process; 0 or less if it has ended."""
    with open(f"/proc/self/fdinfo/{pidfd}", "rb") as lines:
        return next((int(line[4:]) for line in lines if line.startswith(b"Pid:")), 0)


class Keeper:
    """Serves one supervisor at a time on ``line``."""

    def __init__(self, line: _socket.socket, silence: float = SILENCE_SECONDS) -> None:
        self.silence, self.silences = silence, 0
        self.beats = self.is_other = False
        """Whether the program reports that it is alive; and whether the next one is another, which perhaps does not."""
        self.line: _socket.socket | None = line
        self.pidfd: int | None = None
        self.entries: dict[bytes, tuple[bytes, tuple[int, ...]]] = {}
        self.generation, self.pid, self.vain = 0, 0, 0
        self.failed = False
        self.program: list[str] = []
        self.poll = select.poll()
        self.wake, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self.poll.register(self.wake, select.POLLIN)
        self.poll.register(line.fileno(), select.POLLIN)

    def run(self) -> None:
        """Serve until a supervisor ends on purpose."""
        while True:
            ready = self.poll.poll(self.silence * 1000.0)
            self.silences += not ready
            for descriptor, _ in ready:
                if descriptor == self.wake:
                    os.read(self.wake, 4096)
                elif self.line is not None and descriptor == self.line.fileno():
                    self.silences = 0
                    self.command(self.line)
            self.reap()
            if self.beats and self.silences >= SILENCES and self.pidfd is not None:
                self.silences, self.failed = 0, True
                _signal.pidfd_send_signal(self.pidfd, _signal.SIGKILL)
            if self.pidfd is not None and has_ended(self.pidfd):
                self.supervisor_died(self.pidfd)

    def command(self, line: _socket.socket) -> bool:
        """Execute one packet. Return False if there is none now."""
        try:
            data, descriptors = receive(line, _socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            data, descriptors = b"", ()
        kind, rest = data[:1], data[1:]
        name, _, content = rest.partition(b"\0")
        if not data:
            self.hang_up(line)  # the pidfd reports when it has ended
        elif kind == PUT:
            self.drop(name)
            if descriptors:  # else there was no room for them, and the bytes alone are worth nothing
                self.entries[name] = content, descriptors
        elif kind == DROP:
            self.drop(name)
        elif kind == SERVES:
            self.vain = 0
        elif kind == ALIVE:
            self.beats = True
        elif kind == QUIT:
            os._exit(0)
        elif kind == GENERATION:
            if not descriptors:
                os._exit(1)  # without it we cannot see the supervisor die; it starts another keeper
            self.is_other = self.pidfd is not None
            self.generation, self.program = int(name), [os.fsdecode(word) for word in content.split(b"\0")]
            self.pid = pid_of(descriptors[0])
            self.watch(descriptors[0])
        return bool(data)

    def drop(self, name: bytes) -> None:
        """Release an entry."""
        for descriptor in self.entries.pop(name, (b"", ()))[1]:
            os.close(descriptor)

    def watch(self, pidfd: int) -> None:
        """Follow the supervisor by its own descriptor, not its number: it may have died meanwhile."""
        if self.pidfd is not None:
            self.poll.unregister(self.pidfd)
            os.close(self.pidfd)
        self.pidfd = pidfd
        self.poll.register(pidfd, select.POLLIN)

    def reap(self) -> None:
        """Report each child that has ended to the supervisor."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self.pid:
                    self.failed = self.failed or os.waitstatus_to_exitcode(ended[1]) != -_signal.SIGKILL
                elif self.line is not None:
                    send(self.line, b"%c%d %d" % (EXITED, ended[0], os.waitstatus_to_exitcode(ended[1])))
        except ChildProcessError:
            pass

    # -- the next supervisor

    def supervisor_died(self, pidfd: int) -> None:
        """Process the packets that the dead supervisor had already sent, and start the next one."""
        while self.line is not None and self.command(self.line):
            pass
        if self.line is not None:
            self.hang_up(self.line)
        self.reap()
        self.poll.unregister(pidfd)
        os.close(pidfd)
        self.pidfd = None
        while self.pidfd is None:
            self.start()

    def hang_up(self, line: _socket.socket) -> None:
        """Close the line; a keeper that no supervisor has told anything has nothing to keep."""
        self.poll.unregister(line.fileno())
        line.close()
        self.line = None
        if self.pidfd is None:
            os._exit(0)

    def start(self) -> None:
        """Start the next generation, and give it everything. If it cannot start or dies at once, there is no pidfd."""
        self.vain += 1
        self.beats, self.is_other = self.beats and not self.is_other, False
        self.silences = 0
        if self.vain > VAIN_STARTS:
            time.sleep(min(LONGEST_PAUSE, 0.1 * 2 ** (self.vain - VAIN_STARTS - 1)))
        self.generation += 1
        try:
            line, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        except OSError:
            return
        line.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, 1 << 20)
        try:
            self.pid = self.wake_standby(theirs) or self.spawn(theirs)
            pidfd = os.pidfd_open(self.pid)
        except OSError:  # its program may come back, as an upgrade moves it, or the machine be less full
            line.close()
            return
        finally:
            theirs.close()
        self.line = line
        self.poll.register(line.fileno(), select.POLLIN)
        self.watch(pidfd)
        for name, (content, descriptors) in self.entries.items():
            send(line, PUT + name + b"\0" + content, descriptors)
        if self.failed:
            send(line, FAILED)
        self.failed = False
        send(line, ALL)

    def wake_standby(self, theirs: _socket.socket) -> int:
        """Make the standby process the next supervisor. Return its number, or 0 if there is none."""
        content, descriptors = self.entries.pop(STANDBY, (b"", ()))
        found = 0
        for descriptor in descriptors:
            line = _socket.socket(fileno=descriptor)
            if send(line, b"%d" % self.generation, (theirs.fileno(),)):
                found = int(content)
            line.close()
        return found

    def spawn(self, theirs: _socket.socket) -> int:
        """Start a new process."""
        os.set_inheritable(theirs.fileno(), True)
        argv = [*self.program, "--keeper-fd", str(theirs.fileno()), "--generation", str(self.generation)]
        return os.posix_spawn(argv[0], argv, os.environ)


def main() -> None:
    """Run the keeper for the supervisor at the other end of the line."""
    line = _socket.socket(fileno=int(sys.argv[1]))
    # Otherwise a process started here holds our end, and our death is not noticed.
    os.set_inheritable(line.fileno(), False)
    Keeper(line, *map(float, sys.argv[2:3])).run()


if __name__ == "__main__":
    main()
