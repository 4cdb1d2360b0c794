"""The folders of one user's processes, which nobody else may enter, and files that nobody else may read.

Standard library only and cheap to import, because the front needs them first. So paths are strings in here, and
``pathlib`` (12 ms) is imported only where the interface promises it.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from pathlib import Path

APP = "rlm-kernel"
LONGEST_ADDRESS = 107
"""Bytes of a socket's path: sockaddr_un.sun_path without the closing NUL."""
# zmq binds a kernel's sockets by their full path: `k`, 16 digits of the kernel and one of the socket.
_LONGEST_RUNTIME = LONGEST_ADDRESS - len("/k/0123456789abcdef-1")


_LITTLE = 64 << 10
"""Free bytes below which none of our processes can start."""


class DiscoveryError(RuntimeError):
    """The folders, sockets or locks are not usable: ``what`` is wrong, and ``fix`` says what to change."""

    def __init__(self, what: str, fix: str) -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}; {fix}")


def runtime_dir() -> Path:
    """Return the folder for sockets and scratch files, created 0700 if missing, otherwise checked to be private.

    ``$RLM_KERNEL_RUNTIME_DIR``, else ``$XDG_RUNTIME_DIR/rlm-kernel`` (or ``/run/user/<uid>/rlm-kernel``) when that is
    ours and writable, else ``<tmp>/rlm-kernel-<uid>``. Raises :class:`DiscoveryError` if another user could reach into
    it.
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


def is_full(folder: str | os.PathLike[str]) -> bool:
    """Whether the disk of a folder has no more room for data or files."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LITTLE or (disk.f_files > 0 and disk.f_favail == 0)


def put_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a complete file into its place, readable only by its owner. Raises OSError, and leaves nothing then."""
    folder, name = os.path.split(path)
    new = os.path.join(folder, f".{name}.{os.getpid()}")  # hidden from programs that read every file of a folder
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(new, flags, 0o600), "wb") as file:
            file.write(content)
        os.replace(new, path)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
        raise


def _default_runtime() -> str:
    """Return the folder for sockets of a user who has not named one."""
    # Some clients start servers without XDG_RUNTIME_DIR; those must still meet the others.
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
    """Return our folder below an XDG base directory; the specification says that relative values are ignored."""
    base = os.environ.get(variable, "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser(f"~/{default}"), APP)


def _is_ours(folder: str) -> bool:
    """Return whether the folder belongs to this user and is writable (``sudo`` keeps another user's)."""
    try:
        return os.stat(folder).st_uid == os.getuid() and os.access(folder, os.W_OK)
    except OSError:
        return False


def _private(folder: str, variable: str) -> str:
    """Create the folder 0700, or check that it is a real folder of this user that nobody else can enter."""
    if not os.path.isabs(folder):  # the daemon runs elsewhere, and would resolve it to another folder
        raise DiscoveryError(f"{folder} is a relative path", f"set {variable} to an absolute one")
    try:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        status = os.lstat(folder)
    except OSError as error:
        fix = f"set {variable} to a folder that you can write"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = f"free space on its disk, or {fix}"
        raise DiscoveryError(f"cannot use {folder}: {error.strerror}", fix) from error
    if not stat.S_ISDIR(status.st_mode):
        raise DiscoveryError(f"{folder} is not a folder", f"remove it, or set {variable} to another path")
    if status.st_uid != os.getuid():
        raise DiscoveryError(f"{folder} belongs to user id {status.st_uid}", f"set {variable} to your own folder")
    if status.st_mode & 0o077:
        raise DiscoveryError(f"{folder} is open to other users", f"run: chmod 700 '{folder}'")
    return folder
