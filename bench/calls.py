"""What one small call costs, back to back and after a pause, and on which process its processor time falls.

Calls are made by the Python client, and by an MCP client through the stdio front. A batch counts each of its cells.

    python bench/calls.py [--calls 500]

Each figure stands beside the target of a quiet machine. On a busy one run it at a priority.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import front
import psutil
from apart import folders
from ratio import timed

from rlm_client import Client

PAUSE_SECONDS = 0.05
SETTLED_SECONDS = 3.0
"""Until then the daemon collects the garbage of its start, or of importing the SDK: 0.15 s of processor time."""
CELLS = 100
ROLES = {"rlm_mcp.daemon": "daemon", "rlm_kernel.supervisor": "supervisor", "rlm_kernel.keeper": "keeper"}
ROLES |= {"rlm_mcp mcp": "front"}


def processes() -> dict[int, str]:
    """Return the processes that belong to the daemon of this benchmark, by what they are."""
    own, found = os.environ["RLM_KERNEL_RUNTIME_DIR"], {os.getpid(): "client"}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("RLM_KERNEL_RUNTIME_DIR") == own:
                line = " ".join(process.cmdline())
                for name, role in ROLES.items():
                    if name in line:
                        found[process.pid] = role
                        found |= {each.pid: "kernels" for each in process.children(recursive=True)} | found
    return found


def processor_seconds(pids: dict[int, str]) -> dict[str, float]:
    """Return the processor time that the processes have used, by what they are."""
    used = dict.fromkeys(pids.values(), 0.0)
    for pid, role in pids.items():
        with suppress(OSError):
            used[role] += int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    return used


def measure(what: str, call: Callable[[], object], count: int, targets: tuple[float, float], cells: int = 1) -> None:
    """Print the times of a call, back to back and after a pause, and the processor time of each process."""
    for _ in range(20):
        call()
    pids = processes()
    for kind, pause, calls, target in (
        ("back to back", 0.0, count, targets[0]),
        ("after 50 ms", PAUSE_SECONDS, max(20, count // 10), targets[1]),
    ):
        before, taken = processor_seconds(pids), []
        for _ in range(calls):
            time.sleep(pause)
            taken.append(timed(call) * 1000 / cells)
        used = processor_seconds(pids)
        ordered = sorted(taken)
        cost = ", ".join(
            f"{role} {(used[role] - before[role]) * 1000 / calls / cells:.2f}" for role in sorted(used) if used[role]
        )
        median, last = statistics.median(ordered), ordered[len(ordered) * 99 // 100]
        verdict = "met" if median <= target else "not met"
        print(f"{what:<18}{kind:<14}{median:7.2f} ms, p99 {last:7.2f}   target {target:g}, {verdict}   CPU: {cost}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    count = parser.parse_args().calls
    with folders() as folder:
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
        for mode in ("off", "lazy", "strict"):
            policy = folder / f"{mode}.yaml"
            policy.write_text(f"extends: default\ncheckpoint: {mode}\n", encoding="utf-8")
            with Client(mode, policy=policy) as client:
                client.eval_code("1+1")  # starts the daemon
                time.sleep(SETTLED_SECONDS if mode == "off" else 0.0)
                measure(f"1+1, {mode}", partial(client.eval_code, "1+1"), count, (0.5, 2.0))
        with Client("off") as client:
            cells = ["1+1"] * CELLS
            measure(f"{CELLS} cells", partial(client.pipeline, cells), max(1, count // CELLS) * 4, (0.15, 0.15), CELLS)
            client.load_context("log", content="a line of a log\n" * 2000)
            measure("list_vars", client.list_vars, count, (0.5, 2.0))
            over_mcp(count)


def over_mcp(count: int) -> None:
    """Measure calls of a client that has started a front."""
    os.environ["PARENT_SESSION_ID"] = "off"
    client = front.Client(front.FRONT)
    client.initialized()
    client.ask("tools/list")
    time.sleep(SETTLED_SECONDS)
    calls: list[tuple[str, dict[str, object], float]] = [
        ("eval_code", {"code": "1+1"}, 0.9),
        ("list_vars", {}, 0.5),
        ("peek", {"name": "log", "limit": 50}, 0.5),
        ("var_info", {"name": "log"}, 0.5),
    ]
    for tool, arguments, target in calls:
        call = partial(client.ask, "tools/call", name=tool, arguments=arguments)
        measure(f"{tool}, MCP", call, count, (target, 2.0))
    client.close()


if __name__ == "__main__":
    main()
