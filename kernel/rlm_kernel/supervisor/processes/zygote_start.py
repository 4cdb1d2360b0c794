"""Start a zygote. It imports little: a supervisor starts its first zygote before it imports its own modules."""

from __future__ import annotations

import os
import socket
import sys

from rlm_ipc import stale_files
from rlm_ipc.environment import ZYGOTE, chosen

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    StrPath = str | os.PathLike[str]

QUIET_LIBRARIES = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    # pandas imports pyarrow where it is installed. Its own allocators start a thread, and reserve far more memory than
    # they use.
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""An environment in which importing a library starts no thread: a process with threads cannot be forked safely."""
LARGE_COPIES = {"GLIBC_TUNABLES": "glibc.cpu.x86_non_temporal_threshold=0xffffffffff"}
"""An environment in which glibc's memcpy uses the cache for large copies too.

A copy of a text goes to new pages, which the system has just cleared and which are therefore in the cache. Bypassing
the cache, such a copy takes up to a quarter longer. It is worst from a mapped file, which begins at a page boundary,
where the copy begins a few words later in its page.
"""


def start_zygote(runtime: StrPath, log: StrPath, preload: Sequence[str] = ()) -> socket.socket:
    """Start a zygote that imports these modules. Return the lifeline to it, over which it reports when it is ready."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # -P keeps the working folder off sys.path: a user's `yaml.py` or `kernel.py` must not replace a module of ours.
    argv = [sys.executable, "-P", "-m", "rlm_kernel.worker.zygote", "--fd", str(theirs.fileno())]
    argv += ["--preload", ",".join(preload)]
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # The zygote's environment is every kernel's /proc/self/environ, so nothing of the user's goes into it.
        _launch(argv, descriptor, theirs.fileno(), _environment(runtime))
    finally:
        os.close(descriptor)
        theirs.close()
    return ours


def _environment(runtime: StrPath) -> dict[str, str]:
    folder = os.path.join(runtime, stale_files.ZYGOTE)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return {
        "LANG": "C.UTF-8",
        "TMPDIR": folder,
        "PYTHONDONTWRITEBYTECODE": "1",
        **QUIET_LIBRARIES,
        **LARGE_COPIES,
        **chosen(ZYGOTE),
    }


def _launch(argv: list[str], log: int, line: int, env: Mapping[str, str]) -> None:
    """Start a process that inherits ``line``, and leave it to the caller that awaits its handshake there."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
        (os.POSIX_SPAWN_DUP2, line, line),  # this one stays open
    ]
    os.posix_spawn(argv[0], argv, env, file_actions=actions)
