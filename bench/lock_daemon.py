"""The project lock as its users meet it: through a daemon and the command line, each figure beside its target.

    python bench/lock_daemon.py [--files 75000]

A project of so many Python files is made and scanned. Targets are those of docs/lock.md's issue at 50,000 and 75,000
files, for a machine with nothing else to do. Memory is PSS, so that pages that processes share count once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from apart import family, folders, pss_of
from lock_scan import make_project, path_of
from ratio import timed

from rlm_ipc.daemon_connection import DaemonConnection, ask
from rlm_ipc.daemon_requests import ShowStatus
from rlm_ipc.lock_requests import LockShown, ShowLock

ROUNDS = 9
MEGABYTE = 1 << 20
LOCK = [sys.executable, "-P", "-m", "rlm_mcp", "lock"]


class Memory:
    """The memory of a daemon's scanners and of the processes that they start, at its most."""

    def __init__(self, daemon: psutil.Process) -> None:
        self._daemon = daemon
        self.together = self.largest = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look again and again until the work is done."""
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(done,))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(0.2):
            sizes = [pss_of(each) for scanner in scanners(self._daemon) for each in family(scanner.pid)]
            self.together = max(self.together, sum(sizes))
            self.largest = max(self.largest, *sizes, 0)


def scanners(daemon: psutil.Process) -> list[psutil.Process]:
    """Return the scanners of a daemon."""
    found = []
    for each in daemon.children():
        with suppress(psutil.Error):  # it may have ended
            if "rlm_lock.scanner" in each.cmdline():
                found.append(each)
    return found


def finished(asked: ShowLock) -> LockShown:
    """Ask until the scan is done."""
    while (shown := ask(asked, start=True)).phase != "ready":
        pass
    return shown


def row(what: str, value: float, unit: str, target: float) -> None:
    """Print a figure beside its target."""
    print(f"{what:<58}{value:10.2f} {unit:<6}target {target:g}{'' if value <= target else '   missed'}", flush=True)


def rows(what: str, seconds: list[float], target: float) -> None:
    """Print the median and the best of some times beside their target."""
    row(f"{what}, median", statistics.median(seconds), "s", target)
    row(f"{what}, best of {len(seconds)}", min(seconds), "s", target)


def neighbour_seconds(root: Path, number: int, count: int) -> float:
    """Return how long it takes until a map knows that an edited file imports another one."""
    edited, imported = path_of(2 * number, count), path_of(2 * number + 1, count)
    module = imported.removesuffix(".py").replace("/", ".")
    began = time.perf_counter()
    (root / edited).write_text(f"from {module} import f{2 * number + 1}\n", encoding="utf-8")
    asked = ShowLock(str(root), seconds=1.0, refresh=True, tokens=500, focus=(edited,))
    while not ask(asked, start=True).map.startswith(imported):
        pass
    return time.perf_counter() - began


def measure(root: Path, small: Path, state: Path, count: int) -> None:
    """Measure everything."""
    finished(ShowLock(str(small), seconds=4.0))
    with DaemonConnection(ShowStatus()) as control:
        daemon = psutil.Process(control.pid)
    before = pss_of(daemon)
    memory = Memory(daemon)
    with memory.watched():
        first = time.perf_counter()
        ask(ShowLock(str(root), seconds=4.0, sections=("project", "rules")), start=True)
        row("structure, manifests and rules answered", time.perf_counter() - first, "s", 2)
        finished(ShowLock(str(root), seconds=2.0))
        print(f"{f'first scan of {count:,} files':<58}{time.perf_counter() - first:10.2f} s", flush=True)
        whole = ShowLock(str(root), seconds=4.0, sections=("project", "keyfiles", "rules"))
        finished(whole)
    scanner_memory = sum(map(pss_of, scanners(daemon)))
    row("scanner and helpers together at their most", memory.together / MEGABYTE, "MB", 400)
    row("the largest of these processes", memory.largest / MEGABYTE, "MB", 400)
    print(f"{'scanner that has nothing to do':<58}{scanner_memory / MEGABYTE:10.2f} MB")
    row("daemon, more than before", (pss_of(daemon) - before) / MEGABYTE, "MB", 20)
    size = sum(file.stat().st_size for file in state.rglob("*") if file.is_file() and "lock" in str(file.parent))
    row("store, index included", size / count, "B/file", 2048)
    again = ShowLock(str(root), seconds=4.0, refresh=True)
    rows("second scan in the daemon", [timed(lambda: ask(again, start=True)) for _ in range(ROUNDS)], 0.35)
    line = [*LOCK, str(root), "--refresh", "--no-wait"]
    output = subprocess.DEVNULL
    rows("second scan, command line", [timed(lambda: subprocess.run(line, check=True, stdout=output))
                                       for _ in range(ROUNDS)], 0.6)  # fmt: skip
    rows("one edited file: its neighbours are right", [neighbour_seconds(root, n, count) for n in range(ROUNDS)], 1.0)


def main() -> None:
    """Make the projects and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=75_000)
    count = parser.parse_args().files
    with tempfile.TemporaryDirectory() as top, folders() as state:
        root, small = Path(top, "project"), Path(top, "small")
        for place, files in ((root, count), (small, 1_000)):
            place.mkdir()
            make_project(place, files)
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {count:,} files")
        measure(root, small, state, count)


if __name__ == "__main__":
    main()
