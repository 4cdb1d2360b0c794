"""Unix sockets between processes of one user: connect, listen, and who is at the other end."""

from __future__ import annotations

import errno
import os
import socket
import struct
from contextlib import contextmanager, suppress

from rlm_ipc.private_folders import LONGEST_ADDRESS, DiscoveryError

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from collections.abc import Iterator

    StrPath = str | os.PathLike[str]

DYING_SERVER = (0.02, 0.1, 0.5, 2.0)
"""Pauses in seconds: the listening socket of a process that is being torn down still accepts for a moment."""
BACKLOG = 128


class PeerCredentials:
    """Who is at the other end of a unix socket, as reported by the operating system."""

    def __init__(self, pid: int, uid: int) -> None:
        self.pid = pid
        self.uid = uid


def connect(path: StrPath) -> socket.socket | None:
    """Connect to the server at ``path``; ``None`` when nobody listens there.

    Raises :class:`DiscoveryError` when another user's process listens there, or the path cannot be used.
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

    The caller must hold the :func:`claim` for it: then an existing socket file is stale and is replaced.
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
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return PeerCredentials(pid, uid)


def _refuse_stranger(sock: socket.socket, path: StrPath) -> None:
    """Never talk to another user's server, even if the folder was tampered with."""
    if (uid := peer(sock).uid) != os.getuid():
        raise DiscoveryError(f"{path} is served by user id {uid}", "set RLM_KERNEL_RUNTIME_DIR elsewhere")


@contextmanager
def _address(path: StrPath) -> Iterator[str]:
    """Yield an address for ``path`` that fits ``sun_path``, however long the path is."""
    whole = os.path.abspath(path)
    if len(os.fsencode(whole)) <= LONGEST_ADDRESS:
        yield whole
        return
    # The folder is reached through a descriptor, so that only the file's name counts.
    folder = os.open(os.path.dirname(whole), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(whole)}"
    finally:
        os.close(folder)
