"""An identity of a process that outlasts its number: boot, number and start time (Linux).

Numbers are reused, also after a restart of the machine. Together with its start time and the boot, a number identifies
exactly one process. Standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from collections.abc import Iterator

_DEAD = (b"Z", b"X")
_MOST_ANCESTORS = 64
_MOST_BYTES = 4096


def boot() -> str:
    """Return the id of this boot of the machine; empty where the system has none."""
    return _read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()


def identity(pid: int) -> str | None:
    """Return the permanent identity of the process with that number; None if there is none, or it is another user's."""
    fields = stat_fields(pid)
    if not fields or fields[0] in _DEAD:
        return None
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return None
    except OSError:
        return None
    return f"{boot()}:{pid}:{fields[19].decode('ascii', 'replace')}"


def pid_in(identity_: str) -> int:
    """Return the number in an identity; -1 if it is not one."""
    parts = identity_.split(":")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() else -1


def is_alive(identity_: str) -> bool:
    """Whether the process with that identity is alive."""
    pid = pid_in(identity_)
    return pid > 0 and identity(pid) == identity_


def ancestors(pid: int) -> Iterator[int]:
    """Yield the numbers of the processes above one, its parent first."""
    for _ in range(_MOST_ANCESTORS):
        fields = stat_fields(pid)
        if not fields:
            return
        pid = int(fields[1])
        if pid <= 1:
            return
        yield pid


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of a process from its state on (proc_pid_stat(5)); empty if there is no such process."""
    return named_stat(pid)[1]


def named_stat(pid: int) -> tuple[bytes, list[bytes]]:
    """Return the name of a process and its fields as `stat_fields`, which are of one moment."""
    # The name stands in parentheses. A process may choose it, with spaces and parentheses.
    head, _, fields = _read(f"/proc/{int(pid)}/stat").rpartition(b")")
    return head.partition(b"(")[2], fields.split()


def _read(path: str) -> bytes:
    # Raw system calls: the objects of `open` take ten times as long, and a copy is taken with each cell.
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, _MOST_BYTES)
    except OSError:  # the process has ended since
        return b""
    finally:
        os.close(file)
