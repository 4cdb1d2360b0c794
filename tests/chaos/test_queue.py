"""Workers and the daemon are killed at random while they drain a graph of tasks: each is done once, none is lost.

The short form runs with every other test: `make chaos-queue` kills 16 workers on 1,000 tasks.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import wait_until

from rlm_client.client import Client
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus
from rlm_memory.frames import rows
from rlm_memory.frames.states import Kind, Status
from rlm_memory.places import tree_of
from rlm_memory.store import Store

TASKS = int(os.environ.get("RLM_QUEUE_TASKS", "24"))
WORKERS = int(os.environ.get("RLM_QUEUE_WORKERS", "4"))
SEED = int(os.environ.get("RLM_QUEUE_SEED", "1"))
SHORT = 100
"""More tasks than that make it the long form."""
SECONDS = 60.0
WORKER = Path(__file__).parents[1] / "support/queue_worker.py"

pytestmark = pytest.mark.usefixtures("ended")


class Team:
    """The workers that are alive, and how often somebody was killed."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.workers = [self._start() for _ in range(WORKERS)]
        self.killed: Counter[str] = Counter()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-P", str(WORKER), str(self.log)])

    def work_on(self, more: int) -> None:
        """Wait until so much more has been done: between two deaths a slow machine gets on, too."""
        wanted = self._lines() + more
        wait_until(lambda: self._lines() >= wanted or not left(), seconds=2 * SECONDS)

    def _lines(self) -> int:
        return self.log.read_bytes().count(b"\n") if self.log.exists() else 0

    def kill_one(self, dice: random.Random) -> None:
        """Kill a worker at whatever it does, and start another in its place."""
        number = dice.randrange(WORKERS)
        assert self.workers[number].poll() is None, "a worker ended by itself"
        self._end(self.workers[number])
        self.workers[number] = self._start()
        self.killed["worker"] += 1

    def kill_daemon(self) -> None:
        """Kill the daemon; whoever needs one next starts it."""
        with DaemonConnection(ShowStatus(), start=True) as control:
            daemon = psutil.Process(control.pid)
        daemon.kill()
        psutil.wait_procs([daemon], timeout=SECONDS)
        self.killed["daemon"] += 1

    def end(self) -> None:
        """Kill all of them."""
        for worker in self.workers:
            self._end(worker)

    @staticmethod
    def _end(worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait(SECONDS)


def plan(dice: random.Random) -> list[str]:
    """Add tasks of which most wait for two earlier ones."""
    ids: list[str] = []
    with Client() as client:
        for number in range(TASKS):
            blocks = dice.sample(ids[-30:], 2) if number > TASKS // 4 else []
            data = {"goal": f"task {number}", "priority": dice.choice([1000, 750, 500, 250]), "blocks": blocks}
            ids.append(client.work("add", data=data)["added"])
    return ids


def left() -> int:
    """Count what is still to be done, also while a daemon is being killed."""
    root = tree_of(str(Path.cwd()), "")
    store = Store.open(discovery.state_dir() / "rlm.sqlite3")
    try:
        wanted = "SELECT count(*) FROM frames WHERE tree = :tree AND kind = 'task' AND status <> 'completed'"
        return int(store.scalar(wanted, tree=root))
    finally:
        store.close()


@pytest.mark.timeout(0 if TASKS > SHORT else 300)
def test_every_task_is_done_once_whoever_is_killed(
    isolation: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-9: no task is done twice by valid fences, none is lost, and nobody who is dead holds one."""
    monkeypatch.chdir(tmp_path)
    dice, log = random.Random(SEED), tmp_path / "did.log"
    ids = plan(dice)
    team = Team(log)
    try:
        while left():
            team.work_on(dice.randrange(1, 4))
            team.kill_one(dice)
            if team.killed["worker"] % 6 == 3:
                team.kill_daemon()
    finally:
        team.end()
    with Client() as client:
        assert client.work(wait=False) == {"next": []}  # and what the dead held is free
    store = Store.open(discovery.state_dir() / "rlm.sqlite3")
    found = {frame: rows.get(store, rows.frame_key(frame)) for frame in ids}
    ends: Counter[str] = Counter()
    for frame, row in found.items():
        assert (row.kind, row.status, row.holder, row.waiting) == (Kind.TASK, Status.COMPLETED, None, 0)
        events = rows.events_of(store, row.key)
        ends[frame] = sum(event.verb == "pop" for event in events)
        claims = [event for event in events if event.verb in {"claim", "returned"}]
        (end,) = [event for event in events if event.verb == "pop"]
        assert end.author == claims[-1].author, "it was done by somebody who did not hold it"
        assert [event.data["fence"] for event in claims if event.verb == "claim"] == list(range(1, row.fence + 1))
    store.close()
    assert set(ends.values()) == {1}
    told = [line.split() for line in log.read_text().splitlines()]
    fences: dict[str, set[str]] = {}
    for what, frame, *fence in told:
        if what == "done":
            fences.setdefault(frame, set()).update(fence)
    assert all(len(of_frame) == 1 for of_frame in fences.values()), "two were told that they have done it"
    works = sum(what == "worked" for what, *_ in told)
    print(f"{TASKS} tasks, {WORKERS} workers, killed: {dict(team.killed)}; {works} works")
    assert team.killed["worker"] > 2
