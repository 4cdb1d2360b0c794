"""The locks that ensure that only one server serves a path, and that only one process at a time starts it.

*Liveness is a lock, never a pid file.* A server holds ``flock`` on ``<socket>.lock`` while it lives; the operating
system drops it however the process ends, so a stale socket file means nothing.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress

from rlm_ipc.private_folders import DiscoveryError

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Self

    StrPath = str | os.PathLike[str]

CLAIM_SECONDS = 15.0
"""How long a new server waits for one that is shutting down."""
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class InstanceLock:
    """Proof that this process is the only server at a path, until :meth:`release` or its end."""

    def __init__(self, descriptor: int, lock_file: str) -> None:
        self._descriptor = descriptor
        self._lock_file = lock_file

    def stands(self) -> bool:
        """Return whether the lock file is still in its place; otherwise others do not see the claim."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self._lock_file))
        except OSError:
            return False

    def renew(self) -> bool:
        """Claim the path again after its folder was deleted. Return False if another process has claimed it meanwhile.

        Raises OSError when the folder or file cannot be created now.
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
        """Give up the claim. The file stays: removing it would let two servers lock two different files."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def claim(
    path: StrPath, *, seconds: float = CLAIM_SECONDS, meanwhile: Callable[[], None] | None = None
) -> InstanceLock:
    """Become the only server at ``path``; waits up to ``seconds`` for a predecessor that is shutting down.

    Calls ``meanwhile`` repeatedly while it waits. Raises :class:`DiscoveryError` if another process keeps the claim.
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
    """Return whether a live process holds the claim for ``path`` (also while it starts up or shuts down)."""
    try:
        descriptor = os.open(_beside(path, ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    return is_locked(descriptor)


def is_locked(descriptor: int) -> bool:
    """Return whether a live process holds the lock of a file, and close the descriptor."""
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
    """Lock the file exclusively; ``None`` while someone else holds it."""
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
def only_starter(path: StrPath) -> Iterator[None]:
    """Hold the start lock of ``path``; waits while another process starts the server."""
    descriptor = os.open(_beside(path, ".start"), _LOCK_FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
