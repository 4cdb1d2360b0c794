"""What a daemon and its supervisor hold: processes, descriptors, memory, pins, files. What stays of it is a leak.

`Inventory.take` counts now; `Inventory.beyond` says in words what there is more than in an earlier one, of things that
a service without sessions has no use for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from session_processes import is_helper, keeper_of, kernels_below
from waiting import wait_until

from rlm_ipc import discovery
from rlm_ipc.daemon_connection import the_socket

FOLDERS = ("k", "connections", "scratch", "spool")
MORE_DESCRIPTORS = 8
MORE_BYTES = 64 << 20
WARM = 3
"""Processes that a supervisor without sessions has: a zygote, its heir, and the process that it has made ahead."""
SECONDS_TO_REST = 120.0
_LOOKS_AT_REST = 10
"""So many in turn have to find the same descriptors."""


def server(name: str) -> psutil.Process | None:
    """The process that serves the socket ``name``; None when nobody does."""
    with contextlib.suppress(discovery.DiscoveryError, OSError, psutil.NoSuchProcess):
        sock = discovery.connect(name)
        if sock is not None:
            with sock:
                return psutil.Process(discovery.peer(sock).pid)
    return None


def supervisor() -> psutil.Process | None:
    """The supervisor."""
    return server(str(discovery.runtime_dir() / "supervisor.sock"))


def daemon() -> psutil.Process | None:
    """The daemon."""
    return server(the_socket())


@dataclass
class Inventory:
    """Of daemon and supervisor together: how many there are of each.

    ``kernels`` are the processes below the supervisor's keeper, without supervisors.
    """

    kernels: int = 0
    zombies: int = 0
    descriptors: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    pins: int = 0
    files: list[str] = field(default_factory=list)

    @classmethod
    def take(cls) -> Inventory:
        """Count what there is now."""
        made = cls(pins=len(list(_pins())), files=sorted(str(path) for path in _files()))
        for name, process in (("daemon", daemon()), ("supervisor", supervisor())):
            if process is None:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                made.descriptors[name] = process.num_fds()
                made.memory[name] = process.memory_full_info().uss
                below = process.children(recursive=True) if name == "daemon" else kernels_below(keeper_of(process.pid))
                states = [_status(child) for child in below if not is_helper(child)]
                made.zombies += states.count(psutil.STATUS_ZOMBIE)
                made.kernels += len(states) if name == "supervisor" else 0
        return made

    @classmethod
    def at_rest(cls) -> Inventory:
        """Count when nothing of any session is left and nothing is being closed: what a leak is measured from."""
        seen = [cls()]

        def look() -> Inventory:
            seen.append(cls.take())
            return seen[-1]

        def rests(now: Inventory) -> bool:
            return not now.beyond(cls()) and all(one.descriptors == now.descriptors for one in seen[-_LOOKS_AT_REST:])

        return wait_until(look, rests, seconds=SECONDS_TO_REST)

    @classmethod
    def without_leaks(cls, before: Inventory) -> Inventory:
        """Count once nothing is more than before: what the sessions had is gone."""
        return wait_until(cls.take, lambda now: not now.beyond(before), seconds=SECONDS_TO_REST)

    def beyond(self, before: Inventory) -> list[str]:
        """What this one has more than ``before``, apart from what a warm service needs; empty if nothing has leaked."""
        more = [f"file {name}" for name in self.files]
        more += [f"{self.pins} pins"] if self.pins else []
        more += [f"{self.zombies} zombies"] if self.zombies else []
        kernels = max(before.kernels, WARM)  # the one made ahead may have been under way
        more += [f"{self.kernels} kernel processes, not {kernels}"] if self.kernels > kernels else []
        for kind, room, now, then in (
            ("descriptors", MORE_DESCRIPTORS, self.descriptors, before.descriptors),
            ("bytes", MORE_BYTES, self.memory, before.memory),
        ):
            more += [
                f"{count} {kind} of the {name}, not {then[name]}"
                for name, count in now.items()
                if name in then and count > then[name] + room
            ]
        return more


def _files() -> Iterator[Path]:
    for name in FOLDERS:
        folder = discovery.runtime_dir() / name
        with contextlib.suppress(FileNotFoundError):
            yield from folder.iterdir()


def _pins() -> Iterator[int]:
    """Inodes of loaded texts that somebody holds a lock on."""
    store = discovery.state_dir() / "contexts"
    texts = {inode for path in store.rglob("*") if path.name != "lock" and (inode := _inode(path))}
    for line in Path("/proc/locks").read_text().splitlines():
        inode = int(line.split()[-3].split(":")[-1])
        if " FLOCK " in line and inode in texts:
            yield inode


def _inode(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_ino if path.is_file() else None
    return None


def _status(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.status())
    return "gone"
