"""Where the processes of one user find each other: private folders, unix sockets, locks, start on demand.

Standard library only and cheap to import: the stdio front loads it while a client waits for its tools. That
is why paths are strings in here and ``pathlib`` (12 ms) is imported only where the interface promises it.

The rules that make it race-free:

* *Liveness is a lock, never a pid file.* A server holds ``flock`` on ``<socket>.lock`` for as long as it
  lives; the operating system drops it however the process ends, so a stale socket file means nothing.
* *One starter at a time.* Whoever finds nobody listening takes ``<socket>.start``, looks again, and only then
  starts the server; everybody else waits on that lock and finds the socket.
* *Ready is a pipe.* The started server writes one byte to ``--ready-fd`` once it listens. End of file without
  a byte means that it died, so nobody has to guess how long a start may take.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import stat
import struct
import sys
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    StrPath = str | os.PathLike[str]

__all__ = [
    "AlreadyServed",
    "DiscoveryError",
    "InstanceLock",
    "PeerCredentials",
    "announce_ready",
    "claim",
    "claim_to_serve",
    "config_dir",
    "connect",
    "connect_or_start",
    "detach",
    "is_claimed",
    "listen",
    "peer",
    "peer_uid",
    "runtime_dir",
    "runtime_folder",
    "state_dir",
    "state_folder",
]

APP = "rlm-kernel"
START_SECONDS = 60.0
"""How long a starting server may take until it announces that it listens."""
CLAIM_SECONDS = 15.0
"""How long a new server waits for one that is on its way out."""
DYING_SERVER = (0.02, 0.1, 0.5, 2.0)
"""Pauses in seconds: the listening socket of a process that is being torn down accepts for a moment yet."""
BACKLOG = 128
# sockaddr_un.sun_path, without the closing NUL: 108 bytes on Linux, 104 on the BSDs and macOS.
_LONGEST_ADDRESS = 107 if sys.platform == "linux" else 103
# zmq binds a kernel's sockets by their whole path: `k`, 16 digits of the kernel and one of the socket.
_LONGEST_RUNTIME = _LONGEST_ADDRESS - len("/k/0123456789abcdef-1")
_LOG_TAIL_BYTES = 2000
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class DiscoveryError(RuntimeError):
    """The folders, sockets or locks are not usable: ``what`` is wrong, and ``fix`` says what to change."""

    def __init__(self, what: str, fix: str) -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}; {fix}")


class PeerCredentials:
    """Who is at the other end of a unix socket, as the operating system tells it (pid -1: not told)."""

    def __init__(self, pid: int, uid: int) -> None:
        self.pid = pid
        self.uid = uid


# --- private folders ------------------------------------------------------------------------------


def runtime_dir() -> Path:
    """Return the folder for sockets and scratch files, created 0700 if missing, else checked to be private.

    ``$RLM_KERNEL_RUNTIME_DIR``, else ``$XDG_RUNTIME_DIR/rlm-kernel`` (or ``/run/user/<uid>/rlm-kernel``)
    when that is ours and writable, else ``<tmp>/rlm-kernel-<uid>``. Raises :class:`DiscoveryError` if
    another user could reach into it.
    """
    from pathlib import Path

    return Path(runtime_folder())


def state_dir() -> Path:
    """Return the folder for what outlives a reboot (database, contexts, logs), created 0700 and checked.

    ``$RLM_KERNEL_STATE_DIR``, else ``$XDG_STATE_HOME/rlm-kernel``, else ``~/.local/state/rlm-kernel``.
    """
    from pathlib import Path

    return Path(state_folder())


def config_dir() -> Path:
    """Return the folder of the user's own policies and settings; it need not exist.

    ``$RLM_KERNEL_CONFIG_DIR``, else ``$XDG_CONFIG_HOME/rlm-kernel``, else ``~/.config/rlm-kernel``.
    """
    from pathlib import Path

    return Path(os.environ.get("RLM_KERNEL_CONFIG_DIR") or _xdg("XDG_CONFIG_HOME", ".config")).absolute()


def runtime_folder() -> str:
    """Return :func:`runtime_dir` as a string."""
    variable = "RLM_KERNEL_RUNTIME_DIR"
    folder = os.environ.get(variable) or _default_runtime()
    if len(os.fsencode(folder)) > _LONGEST_RUNTIME:
        fix = f"set {variable} to one of at most {_LONGEST_RUNTIME} bytes"
        raise DiscoveryError(f"{folder} is too long a path for sockets", fix)
    return _private(folder, variable)


def _default_runtime() -> str:
    """Return the folder for sockets of a user who has not named one."""
    # Some clients start servers without XDG_RUNTIME_DIR: those must meet the others all the same.
    base = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    if os.path.isabs(base) and _is_ours(base):
        return os.path.join(base, APP)
    # Not tempfile.gettempdir(): its import alone costs the front 10 ms.
    temporary = os.environ.get("TMPDIR") or "/tmp"
    return os.path.join(temporary, f"{APP}-{os.getuid()}")


def state_folder() -> str:
    """Return :func:`state_dir` as a string."""
    given = os.environ.get("RLM_KERNEL_STATE_DIR")
    return _private(given or _xdg("XDG_STATE_HOME", ".local/state"), "RLM_KERNEL_STATE_DIR")


def _xdg(variable: str, default: str) -> str:
    """Return our folder below an XDG base directory; the specification has relative values ignored."""
    base = os.environ.get(variable, "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser(f"~/{default}"), APP)


def _is_ours(folder: str) -> bool:
    """Say whether the folder is this user's and can be written (``sudo`` keeps a foreign one)."""
    try:
        return os.stat(folder).st_uid == os.getuid() and os.access(folder, os.W_OK)
    except OSError:
        return False


def _private(folder: str, variable: str) -> str:
    """Create the folder 0700, or check that it is a real folder of ours that nobody else can enter."""
    if not os.path.isabs(folder):  # the daemon runs elsewhere, and would take it for another folder
        raise DiscoveryError(f"{folder} is a relative path", f"set {variable} to an absolute one")
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
    except OSError as error:
        fix = f"set {variable} to a folder that you can write"
        raise DiscoveryError(f"cannot use {folder}: {error.strerror}", fix) from error
    if not stat.S_ISDIR(found.st_mode):
        raise DiscoveryError(f"{folder} is not a folder", f"remove it, or set {variable} to another path")
    if found.st_uid != os.getuid():
        raise DiscoveryError(f"{folder} belongs to user id {found.st_uid}", f"set {variable} to your own folder")
    if found.st_mode & 0o077:
        raise DiscoveryError(f"{folder} is open to other users", f"run: chmod 700 '{folder}'")
    return folder


# --- sockets --------------------------------------------------------------------------------------


def connect(path: StrPath) -> socket.socket | None:
    """Connect to the server at ``path``; ``None`` when nobody listens there.

    Raises :class:`DiscoveryError` when somebody else's process listens there, or the path cannot be used.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _address(path) as address:
            sock.connect(address)
        _refuse_stranger(sock, path)
    except OSError as error:
        sock.close()
        if error.errno in {errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOTDIR}:
            return None
        raise DiscoveryError(f"cannot connect to {path}: {error.strerror or error}", "remove that file") from error
    except DiscoveryError:
        sock.close()
        raise
    return sock


def listen(path: StrPath) -> socket.socket:
    """Listen at ``path`` with mode 0600.

    The caller must hold the :func:`claim` for it: then a socket file found there is stale and is replaced.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        with _address(path) as address:
            sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        why = error.strerror or error
        raise DiscoveryError(f"cannot listen at {path}: {why}", "set RLM_KERNEL_RUNTIME_DIR") from error
    finally:
        os.umask(mask)
    return sock


def peer(sock: socket.socket) -> PeerCredentials:
    """Return process and user id at the other end of a connected unix socket."""
    if hasattr(socket, "SO_PEERCRED"):
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return PeerCredentials(pid, uid)
    # macOS and the BSDs: LOCAL_PEERCRED (1) at SOL_LOCAL (0) gives struct xucred {version, uid, ...}.
    _, uid = struct.unpack("2I", sock.getsockopt(0, 1, 76)[:8])
    return PeerCredentials(-1, uid)


def peer_uid(sock: socket.socket) -> int:
    """Return the user id at the other end of a connected unix socket."""
    return peer(sock).uid


def _refuse_stranger(sock: socket.socket, path: StrPath) -> None:
    """Never talk to a server of another user, even if the folder was tampered with."""
    if (uid := peer_uid(sock)) != os.getuid():
        raise DiscoveryError(f"{path} is served by user id {uid}", "set RLM_KERNEL_RUNTIME_DIR elsewhere")


@contextmanager
def _address(path: StrPath) -> Iterator[str]:
    """Yield an address for ``path`` that fits ``sun_path``, however long the path is."""
    whole = os.path.abspath(path)
    if len(os.fsencode(whole)) <= _LONGEST_ADDRESS:
        yield whole
        return
    if sys.platform != "linux":
        raise DiscoveryError(f"{whole} is too long for a socket", "shorten RLM_KERNEL_RUNTIME_DIR")
    # The folder is reached through a descriptor, so that only the file's name counts.
    folder = os.open(os.path.dirname(whole), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(whole)}"
    finally:
        os.close(folder)


# --- locks ----------------------------------------------------------------------------------------


class InstanceLock:
    """Proof that this process is the one server at a path, until :meth:`release` or its end."""

    def __init__(self, descriptor: int, lock_file: str) -> None:
        self._descriptor = descriptor
        self._lock_file = lock_file

    def stands(self) -> bool:
        """Say whether the lock file is still at its place; if not, others do not see the claim."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._lock_file))
        except OSError:
            return False

    def renew(self) -> bool:
        """Claim the path again after its folder was deleted; False if another process has done so meanwhile.

        Raises OSError when folder or file cannot be made now.
        """
        os.makedirs(os.path.dirname(self._lock_file), mode=0o700, exist_ok=True)
        descriptor = _try_lock(self._lock_file)
        if descriptor is None:
            return False
        os.close(self._descriptor)
        self._descriptor = descriptor
        return True

    def fileno(self) -> int:
        """Return the locked descriptor; a forked child that must not hold the claim closes it."""
        return self._descriptor

    def touch(self) -> None:
        """Refresh the lock file's times, so that cleaners of temporary folders leave it alone."""
        with suppress(OSError):
            os.utime(self._descriptor)

    def release(self) -> None:
        """Give the claim up. The file stays: removing it would let two servers lock two different files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class AlreadyServed(Exception):
    """Another server was faster: who wanted one finds that."""


def claim_to_serve(path: StrPath, ready: int | None) -> InstanceLock:
    """:func:`claim` for a server that somebody has started, and who waits at ``ready``.

    Nobody listened then. So who does while this one waits was started before it, by somebody who was killed meanwhile:
    the starter is sent there. Raises :class:`AlreadyServed` after that.
    """

    def look() -> None:
        if (sock := connect(path)) is not None:
            sock.close()
            announce_ready(ready)
            raise AlreadyServed

    return claim(path, meanwhile=look)


def claim(
    path: StrPath, *, seconds: float = CLAIM_SECONDS, meanwhile: Callable[[], None] | None = None
) -> InstanceLock:
    """Become the one server at ``path``; waits up to ``seconds`` for a predecessor that is shutting down.

    Calls ``meanwhile`` again and again while it waits. Raises :class:`DiscoveryError` if another process keeps the
    claim.
    """
    deadline = time.monotonic() + seconds
    while (descriptor := _try_lock(_beside(path, ".lock"))) is None:
        if meanwhile is not None:
            meanwhile()
        if time.monotonic() >= deadline:
            raise DiscoveryError(f"another process serves {path}", "stop it: rlm-kernel daemon stop")
        time.sleep(0.02)
    return InstanceLock(descriptor, os.path.abspath(_beside(path, ".lock")))


def is_claimed(path: StrPath) -> bool:
    """Say whether a live process holds the claim for ``path`` (also while it starts up or shuts down)."""
    try:
        descriptor = os.open(_beside(path, ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _beside(path: StrPath, suffix: str) -> str:
    return os.fspath(path) + suffix


def _try_lock(lock_file: str) -> int | None:
    """Lock the file exclusively; ``None`` while somebody else holds it."""
    descriptor = os.open(lock_file, _LOCK_FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A cleaner may have removed the file between open and flock: then the lock proves nothing.
        if os.path.samestat(os.fstat(descriptor), os.stat(lock_file)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


@contextmanager
def _only_starter(path: StrPath) -> Iterator[None]:
    """Hold the start lock of ``path``; waits while another process is starting the server."""
    descriptor = os.open(_beside(path, ".start"), _LOCK_FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- starting on demand ---------------------------------------------------------------------------


def connect_or_start(
    path: StrPath,
    argv: Sequence[str],
    *,
    log: StrPath,
    env: Mapping[str, str] | None = None,
    seconds: float = START_SECONDS,
) -> socket.socket:
    """Connect to the server at ``path``; if nobody listens, start ``[*argv, "--ready-fd", N]`` first.

    The server starts in its own session with ``/`` as its working directory, the null device as standard
    input, and its output appended to the file ``log``. Raises :class:`DiscoveryError` with the end of that
    log when it does not get ready within ``seconds``.
    """
    for _ in range(3):
        if (sock := connect(path)) is not None:
            return sock
        with _only_starter(path):
            if (sock := connect(path)) is not None:
                return sock
            _start(argv, log, env, seconds)
    raise DiscoveryError(f"{_name(argv)} says that it is ready, but nobody listens at {path}", f"see {log}")


def announce_ready(descriptor: int | None) -> None:
    """Tell the starter that this server listens, and close the pipe. ``None``: nobody asked."""
    if descriptor is None:
        return
    with suppress(OSError):  # The starter may have given up; the server is of use to others.
        os.write(descriptor, b"1")
    os.close(descriptor)


def detach() -> None:
    """Continue in a grandchild of the starter, which is handed to init. Call it first, while single-threaded.

    The starter then never keeps a zombie, and a client that kills the whole process tree of its MCP server
    does not take away the server that all the others use.
    """
    between = os.getpid()
    if os.fork():
        os._exit(0)
    # On a busy machine it ends late; the starter reaps it when we are ready, and not again.
    while os.getppid() == between:
        time.sleep(0.001)


# Started servers that did not detach: kept, so that the next start reaps those that ended.
_started: list[subprocess.Popen[bytes]] = []


def _start(argv: Sequence[str], log: StrPath, env: Mapping[str, str] | None, seconds: float) -> None:
    """Start the server and wait until it announces itself."""
    import subprocess  # 8 ms that a front with a warm daemon does not need to pay

    reader, writer = os.pipe()
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    log_start = os.fstat(log_descriptor).st_size
    try:
        process = subprocess.Popen(
            [*argv, "--ready-fd", str(writer)],
            stdin=subprocess.DEVNULL, stdout=log_descriptor, stderr=log_descriptor, pass_fds=(writer,),
            start_new_session=True, cwd="/", env=env,
        )  # fmt: skip
    except OSError as error:
        os.close(reader)
        raise DiscoveryError(f"cannot run {_name(argv)}: {error.strerror}", "reinstall rlm-kernel") from error
    finally:
        os.close(writer)
        os.close(log_descriptor)
    ready = _read_ready(reader, seconds)
    _started[:] = [p for p in [*_started, process] if p.poll() is None]
    if not ready:
        what = f"{_name(argv)} did not start; {_last_words(log, log_start)}"
        raise DiscoveryError(what, f"see {log}; `rlm-kernel doctor` checks the installation")


def _read_ready(reader: int, seconds: float) -> bool:
    """Wait for the ready byte; false at end of file (it died) or after ``seconds``."""
    try:
        readable, _, _ = select.select([reader], [], [], seconds)
        return bool(readable) and os.read(reader, 1) == b"1"
    finally:
        os.close(reader)


def _last_words(log: StrPath, log_start: int) -> str:
    """Return the end of what a server that did not start has written."""
    with open(log, "rb") as file:
        file.seek(max(log_start, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        tail = file.read().decode(errors="replace").strip()
    return f"it said:\n{tail}" if tail else "it said nothing"


def _name(argv: Sequence[str]) -> str:
    """Name a command the way a person would: the module or script, not the interpreter."""
    return argv[argv.index("-m") + 1] if "-m" in argv[:-1] else os.path.basename(argv[0])
