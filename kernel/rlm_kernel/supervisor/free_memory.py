"""How much memory is left: on the machine, and in the control groups of this process (cgroups(7), versions 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_GROUPS = Path("/sys/fs/cgroup")
_RECLAIMED = ("active_file", "inactive_file")
"""What `memory.stat` calls the file pages that the system drops when it needs room."""


class Version(NamedTuple):
    """The files of a control group: its limit, and what its processes use."""

    limit: str
    usage: str


_V1, _V2 = Version("memory.limit_in_bytes", "memory.usage_in_bytes"), Version("memory.max", "memory.current")


def available_memory(process: str = "self", groups: Path = _GROUPS) -> int | None:
    """Bytes available without swapping to a process; None if the system does not say."""
    found = [_of_machine(), *(_of_group(folder, version) for folder, version in _groups_of(process, groups))]
    return min((free for free in found if free is not None), default=None)


def _of_machine() -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _groups_of(process: str, groups: Path) -> Iterator[tuple[Path, Version]]:
    """The control groups that limit its memory: its own and all above that."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers == "":
                yield from ((folder, _V2) for folder in _upwards(groups, name))
            elif "memory" in controllers.split(","):
                yield from ((folder, _V1) for folder in _upwards(groups / "memory", name))


def _upwards(top: Path, name: str) -> Iterator[Path]:
    """A group's folder and those above it. In a container the name may be that outside, and only the top be there."""
    folder = top / name.lstrip("/")
    while folder != top and top in folder.parents:
        yield folder
        folder = folder.parent
    yield top


def _of_group(folder: Path, version: Version) -> int | None:
    with suppress(OSError, ValueError):
        limit = (folder / version.limit).read_text().strip()
        if limit == "max":
            return None
        used = int((folder / version.usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        total = "total_" if version is _V1 else ""
        reclaimed = sum(int(stat.get(f"{total}{kind}", 0)) for kind in _RECLAIMED)
        return max(0, int(limit) - max(0, used - reclaimed))
    return None
