"""The queue through MCP, and how soon a task is free when its holder dies. Run it at priority: ``chrt -r 10``.

10,000 tasks with up to three edges each. A death has two times: from SIGKILL until the daemon has freed the task, and
until another client has claimed it, which asks again and again. When the daemon is killed too, they begin when the next
one listens.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Thread

import psutil
from apart import folders
from ratio import Case, compare
from work_rows import FRAMES, filled

from rlm_client.client import Client
from rlm_ipc import discovery
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus
from rlm_memory.frames import rows
from rlm_memory.places import tree_of
from rlm_memory.store import Store

CALLS = 200
DEATHS = 30
RESTARTS = 5
HOLD = """
import sys, time
from rlm_client import Client
agent = Client()
agent.work("claim", sys.argv[1])
print(flush=True)
time.sleep(999)
"""


def main() -> None:
    """Print what the calls cost and how long tasks are held by the dead."""
    with folders() as place:
        os.chdir(place)
        (Path(place) / ".git").mkdir()
        database = discovery.state_dir() / "rlm.sqlite3"
        store = Store.open(database)
        filled(store, tree_of(str(place), ""), 0.2)
        store.close()
        with Client() as agent:
            agent.work("next")
            cases = [
                Case("status", partial(_quietly, agent.status)),
                Case("next", partial(_quietly, agent.work, "next")),
            ]
            results = compare(f"through MCP, {FRAMES} tasks", cases, rounds=CALLS, warm_up=10)
            print(f"  next: {results[1].median * 1e3:.2f} ms at the median, of 4")
            task = str(agent.work("add", data={"goal": "to be held", "priority": 1000})["added"])
            told("killed, the daemon lives", [death(agent, task, database, daemon=False) for _ in range(DEATHS)])
            told("the daemon killed as well", [death(agent, task, database, daemon=True) for _ in range(RESTARTS)])


def death(agent: Client, task: str, database: Path, *, daemon: bool) -> tuple[float, float]:
    """Kill a holder; returns the seconds until its task is free by the rows, and by the answer to who waits."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, task], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    got: list[float] = []

    def wait() -> None:
        with Client() as other:
            while not _taken(other, task):
                pass
            got.append(time.time())
            other.work("release", task)

    began = time.time()
    if daemon:
        with DaemonConnection(ShowStatus(), start=True) as control:
            process = psutil.Process(control.pid)
        process.kill()
        process.wait()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    if daemon:
        with DaemonConnection(ShowStatus(), start=True):
            began = time.time()
    waiting = Thread(target=wait)
    waiting.start()
    waiting.join()
    freed = [event.at for event in events(database, task) if event.verb == "freed"]
    return max(0.0, freed[-1] - began), got[0] - began


def _quietly(call: Callable[..., object], *given: object) -> None:
    call(*given)


def _taken(other: Client, task: str) -> bool:
    try:
        other.work("claim", task)
    except Exception:
        return False
    return True


def events(database: Path, task: str) -> Iterator[rows.Event]:
    """The log of a task."""
    store = Store.open(database)
    try:
        yield from rows.events_of(store, key=rows.frame_key(task))
    finally:
        store.close()


def told(name: str, found: Sequence[tuple[float, float]]) -> None:
    """Print medians and the worst."""
    for what, values in zip(("free by the rows", "claimed by another"), zip(*found, strict=True), strict=True):
        print(f"  {name}, {what}: {statistics.median(values) * 1e3:.0f} ms, at most {max(values) * 1e3:.0f}")


if __name__ == "__main__":
    main()
