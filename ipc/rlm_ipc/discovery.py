"""How the processes of one user find each other: private folders, unix sockets, locks, start on demand.

This is the interface of `private_folders`, `unix_sockets` and `instance_lock`, and starts a missing server. Standard
library only and cheap to import: the stdio front loads it while a client waits for its tools.

The rules that make it race-free:

* *Liveness is a lock, never a pid file* (`instance_lock`).
* *One starter at a time.* A process that finds nobody listening takes ``<socket>.start``, looks again, and only then
  starts the server; every other process waits on that lock and finds the socket.
* *Ready is a pipe.* The started server writes one byte to ``--ready-fd`` once it listens. End of file without
  a byte means that it died, so nobody has to guess how long a start may take.
"""

from __future__ import annotations

import os
import select
import socket
import time
from contextlib import suppress

from rlm_ipc.instance_lock import CLAIM_SECONDS, InstanceLock, claim, is_claimed, only_starter
from rlm_ipc.private_folders import (
    DiscoveryError,
    config_dir,
    is_full,
    runtime_dir,
    runtime_folder,
    state_dir,
    state_folder,
)
from rlm_ipc.unix_sockets import DYING_SERVER, connect, listen, peer

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    StrPath = str | os.PathLike[str]

__all__ = [
    "DYING_SERVER",
    "AlreadyServed",
    "DiscoveryError",
    "InstanceLock",
    "announce_ready",
    "claim",
    "claim_to_serve",
    "config_dir",
    "connect",
    "connect_or_start",
    "detach",
    "is_claimed",
    "is_full",
    "listen",
    "peer",
    "runtime_dir",
    "runtime_folder",
    "state_dir",
    "state_folder",
]

START_SECONDS = 60.0
"""How long a starting server may take until it announces that it listens."""
_LOG_TAIL_BYTES = 2000
_STARTS = 3


class AlreadyServed(Exception):
    """Another server was faster: callers find that one."""


def claim_to_serve(path: StrPath, ready: int | None) -> InstanceLock:
    """Run :func:`claim` for a server whose starter waits at ``ready``.

    Nobody was listening then. So a server that listens while this one waits was started earlier, by a process that was
    killed in the meantime: the starter is directed to it. Raises :class:`AlreadyServed` after that.
    """

    def look() -> None:
        if (sock := connect(path)) is not None:
            sock.close()
            announce_ready(ready)
            raise AlreadyServed

    # Another one may be starting slowly: wait as long as the starter waits, less the time that this one needs to start.
    waits = CLAIM_SECONDS if ready is None else max(CLAIM_SECONDS, START_SECONDS - CLAIM_SECONDS)
    return claim(path, seconds=waits, meanwhile=look)


def connect_or_start(
    path: StrPath,
    argv: Sequence[str],
    *,
    log: StrPath,
    env: Mapping[str, str] | None = None,
    seconds: float = START_SECONDS,
) -> socket.socket:
    """Connect to the server at ``path``; if nobody listens, start ``[*argv, "--ready-fd", N]`` first.

    The server starts in its own session with ``/`` as its working directory, the null device as standard input, and its
    output appended to the file ``log``. Raises :class:`DiscoveryError` with the end of that log when it does not get
    ready within ``seconds``. A server that ended without output was killed, so another is started.
    """
    for _ in range(_STARTS):
        if (sock := connect(path)) is not None:
            return sock
        with only_starter(path):
            if (sock := connect(path)) is not None:
                return sock
            _start(argv, log, env, seconds)
    what = f"{_name(argv)} was started {_STARTS} times, printed nothing, and does not listen at {path}"
    raise DiscoveryError(what, f"see {log}; `rlm-kernel doctor` checks the installation")


def announce_ready(descriptor: int | None) -> None:
    """Tell the starter that this server listens, and close the pipe. ``None``: nobody asked."""
    if descriptor is None:
        return
    with suppress(OSError):  # The starter may have given up, but the server is useful to others.
        os.write(descriptor, b"1")
    os.close(descriptor)


def detach() -> None:
    """Continue in a grandchild of the starter, which is handed to init. Call it first, while single-threaded.

    The starter then never keeps a zombie, and a client that kills the whole process tree of its MCP server does not
    kill the server that all the others use.
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
    """Start the server and wait until it announces itself, or has ended without output."""
    reader, writer = os.pipe()
    try:
        log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError as error:
        os.close(reader)
        os.close(writer)
        raise DiscoveryError(
            f"cannot write {os.fsdecode(log)}: {error.strerror}", "free space on its disk, or make it writable"
        ) from error
    log_start = os.fstat(log_descriptor).st_size
    try:
        process = _launch(argv, log_descriptor, writer, env)
    except OSError as error:
        os.close(reader)
        raise DiscoveryError(f"cannot run {_name(argv)}: {error.strerror}", "reinstall rlm-kernel") from error
    finally:
        os.close(writer)
        os.close(log_descriptor)
    ready = _read_ready(reader, seconds)
    _started[:] = [p for p in [*_started, process] if p.poll() is None]
    if ready == b"1":
        return
    if is_full(folder := os.path.dirname(log)):  # its message about that may have had no room either
        raise DiscoveryError(
            f"{_name(argv)} did not start: the disk of {os.fsdecode(folder)} is full",
            "free space on that disk, and call again",
        )
    words = _last_words(log, log_start)
    if ready is None or words:
        problem = f"its output:\n{words}" if words else f"it was not ready after {seconds:g} s"
        hint = f"see {log}; `rlm-kernel doctor` checks the installation"
        raise DiscoveryError(f"{_name(argv)} did not start; {problem}", hint)


def _launch(argv: Sequence[str], log: int, ready: int, env: Mapping[str, str] | None) -> subprocess.Popen[bytes]:
    import subprocess  # 8 ms that a front with a warm daemon does not need to pay

    return subprocess.Popen(
        [*argv, "--ready-fd", str(ready)],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(ready,), start_new_session=True, cwd="/", env=env,
    )  # fmt: skip


def _read_ready(reader: int, seconds: float) -> bytes | None:
    """Wait for the ready byte; empty at end of file (it died), None after ``seconds``."""
    try:
        readable, _, _ = select.select([reader], [], [], seconds)
        return os.read(reader, 1) if readable else None
    finally:
        os.close(reader)


def _last_words(log: StrPath, log_start: int) -> str:
    """Return the end of the output of a server that did not start."""
    with open(log, "rb") as file:
        file.seek(max(log_start, file.seek(0, os.SEEK_END) - _LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").strip()


def _name(argv: Sequence[str]) -> str:
    """Name a command as a person would: the module or script, not the interpreter."""
    return argv[argv.index("-m") + 1] if "-m" in argv[:-1] else os.path.basename(argv[0])
