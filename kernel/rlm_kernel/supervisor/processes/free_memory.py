"""How much memory is left: on the machine, and in the control groups of this process (cgroups(7), versions 1 and 2).

The supervisor asks ten times a second while a cell runs, on its only thread. So a group without a limit is not counted,
and the detailed statistics of one with a limit, which take the system long to make, are read only when they may matter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

_GROUPS = "/sys/fs/cgroup"
_RECLAIMED = ("active_file", "inactive_file")
"""Names in `memory.stat` for the file pages that the system drops when it needs room."""
_NO_LIMIT = 1 << 62
"""Version 1 gives the largest number of pages there can be, in bytes."""
_MOST_BYTES = 1 << 20
"""Larger than any of the files."""


class Version(NamedTuple):
    """The files of a control group: its limit, and what its processes use."""

    limit: str
    usage: str


_V1, _V2 = Version("memory.limit_in_bytes", "memory.usage_in_bytes"), Version("memory.max", "memory.current")


def available_memory(process: str = "self", groups: str = _GROUPS, *, enough: int | None = None) -> int | None:
    """Return the bytes available without swapping to a process; None if the system does not say.

    If there are at least ``enough``, the figure may be too low.
    """
    found = [_of_machine(), *(_of_group(folder, kind, enough) for folder, kind in _groups_of(process, groups))]
    return min((free for free in found if free is not None), default=None)


def _read(path: str) -> str:
    # Takes a quarter of the time of `Path.read_text`.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(file, _MOST_BYTES).decode()
    finally:
        os.close(file)


def _of_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        return int(_read("/proc/meminfo").split("MemAvailable:", 1)[1].split(None, 1)[0]) * 1024
    return None


def _groups_of(process: str, groups: str) -> Iterator[tuple[str, Version]]:
    """Yield the control groups that limit its memory: its own and all above it."""
    with suppress(OSError):
        for line in _read(f"/proc/{process}/cgroup").splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers == "":
                yield from ((folder, _V2) for folder in _upwards(groups, name))
            elif "memory" in controllers.split(","):
                yield from ((folder, _V1) for folder in _upwards(f"{groups}/memory", name))


def _upwards(top: str, name: str) -> Iterator[str]:
    """Yield a group's folder and those above it.

    In a container the name may be the outer one, and only the top exists.
    """
    names = [part for part in name.split("/") if part]
    while names:
        yield "/".join((top, *names))
        names.pop()
    yield top


def _of_group(folder: str, version: Version, enough: int | None) -> int | None:
    with suppress(OSError, ValueError):
        limit = _read(f"{folder}/{version.limit}").strip()
        if limit == "max" or int(limit) >= _NO_LIMIT:
            return None
        unused = int(limit) - int(_read(f"{folder}/{version.usage}"))
        if enough is not None and unused >= enough:
            return unused
        stat = dict(line.split() for line in _read(f"{folder}/memory.stat").splitlines())
        total = "total_" if version is _V1 else ""
        reclaimed = sum(int(stat.get(f"{total}{kind}", 0)) for kind in _RECLAIMED)
        return max(0, min(int(limit), unused + reclaimed))
    return None
