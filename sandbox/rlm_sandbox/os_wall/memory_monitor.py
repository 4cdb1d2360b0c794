"""Watches a kernel process and its scratch folder from outside.

RLIMIT_DATA is the memory limit where it exists: exact and free. The monitor sees what it does not: how much
of the limit is in use, processor time, programs that a session runs, and the only limit there is on systems
without RLIMIT_DATA. On Linux `MemoryMonitor.rss` is a single read of an open file, made for looking often;
``sample`` opens several, ``uss`` walks the process's memory map and ``tree`` every process of the machine.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from rlm_sandbox.errors import ProcessGone

SMALLEST_ENTRY_BYTES = 4096
"""What an empty file or folder counts for, so that a million of them do not count as nothing."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_BLOCK_BYTES = 512


@dataclass(frozen=True)
class Sample:
    """What a process uses at one moment."""

    rss: int
    """Bytes in memory, shared pages included; with ``tree`` the sum over the process and its children."""
    uss: int | None
    """Bytes that would be free if the process ended; None unless asked for."""
    cpu: float
    """Seconds of processor time since the process started."""
    threads: int
    children: int
    """Processes below this one; 0 unless ``tree`` was asked for."""


class MemoryMonitor:
    """Samples processes by number. Keeps one descriptor a process open; `forget` those that have ended."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._statm: dict[int, int] = {}

    def rss(self, pid: int) -> int:
        """Bytes of memory of one process, the cheap way; for a loop that looks often.

        Raises:
            ProcessGone: It has ended.
        """
        fd = self._statm_fd(pid)
        if fd is None:
            return self.sample(pid).rss
        try:
            return int(os.pread(fd, 128, 0).split()[1]) * _PAGE_BYTES
        except (ProcessLookupError, IndexError):
            raise self._gone(pid) from None

    def sample(self, pid: int, *, uss: bool = False, tree: bool = False) -> Sample:
        """What one process uses now.

        Raises:
            ProcessGone: It has ended, or is a zombie.
        """
        try:
            process = self._process(pid)
            children = process.children(recursive=True) if tree else []
            with process.oneshot():
                times = process.cpu_times()
                return Sample(
                    rss=process.memory_info().rss + sum(map(_rss_or_zero, children)),
                    uss=process.memory_full_info().uss if uss else None,
                    cpu=times.user + times.system,
                    threads=process.num_threads(),
                    children=len(children),
                )
        except (psutil.NoSuchProcess, ProcessLookupError):
            raise self._gone(pid) from None

    def forget(self, pid: int) -> None:
        """Stop watching a process; unknown numbers are ignored."""
        self._processes.pop(pid, None)
        fd = self._statm.pop(pid, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Stop watching everything."""
        for pid in {*self._processes, *self._statm}:
            self.forget(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _process(self, pid: int) -> psutil.Process:
        """The process first seen under this number: a number that was given to another process is not it."""
        process = self._processes.setdefault(pid, psutil.Process(pid))
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(pid)
        return process

    def _statm_fd(self, pid: int) -> int | None:
        """A descriptor that stays with the process and not with its number; None where there is no /proc."""
        if pid not in self._statm and psutil.LINUX:
            try:
                self._statm[pid] = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, ProcessLookupError):
                raise self._gone(pid) from None
        return self._statm.get(pid)

    def _gone(self, pid: int) -> ProcessGone:
        self.forget(pid)
        return ProcessGone(pid)


def _rss_or_zero(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def folder_bytes(folder: Path, *, stop_at: int) -> int:
    """Bytes on disk of everything in ``folder``; counting ends as soon as ``stop_at`` is reached.

    The folder belongs to a session that may be hostile while we look: symbolic links are not followed,
    entries may vanish, and a path too long to look at counts as ``stop_at``.
    """
    total = 0
    folders = [os.fspath(folder)]
    while folders and total < stop_at:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    used = entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
                    total += max(used, SMALLEST_ENTRY_BYTES)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    if total >= stop_at:
                        return total
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return stop_at
    return total
