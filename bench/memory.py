"""What sessions that are left alone need: ten of them with everything that serves them, against stock kernels.

Counted is the proportional set size (PSS): what a process has for itself, and its share of what it shares. Of ours:
the daemon, the supervisor, the zygote, the process that waits for the next session, and of each session its kernel and
the copies that a crash or a rollback goes back to. Needs Linux.
"""

import os
import re
import subprocess
import time
from pathlib import Path

import psutil
from apart import end, folders, pss_of
from jupyter_client.manager import KernelManager

from rlm_client import Client

SESSIONS = 10
TARGET_MB = 32.0
PAUSE_SECONDS = 0.3
"""Between two cells; time enough for a copy, of which the last is kept for a rollback."""
SETTLED_SECONDS = 8.0
STOCK = 3


def ours(state: Path) -> list[psutil.Process]:
    """The daemon over a state folder, and all that descends from it or from its supervisor."""
    found = []
    for process in psutil.process_iter():
        try:
            roots = [process, *process.parents()]
            if process.pid != os.getpid() and any(_serves(root, state) for root in roots):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _serves(process: psutil.Process, state: Path) -> bool:
    """Whether it is a daemon or a supervisor over that folder.

    Kernels have an empty environment, and a supervisor above them.
    """
    modules = ("rlm_mcp.daemon", "rlm_kernel.supervisor")
    at_work = any(module in process.cmdline() for module in modules)
    return at_work and process.environ().get("RLM_KERNEL_STATE_DIR") == str(state)


def megabytes(processes: list[psutil.Process]) -> dict[str, float]:
    """PSS by kind of process."""
    total: dict[str, float] = {}
    for process in processes:
        kind = re.search(r"rlm_mcp\.daemon|rlm_kernel\.supervisor", " ".join(process.cmdline()))
        name = kind[0] if kind else "kernels and copies"
        total[name] = total.get(name, 0.0) + pss_of(process) / 1e6
    return total


def stock_kernel() -> float:
    """PSS in MB of one stock ipykernel that has run a cell, while others run."""
    managers = [KernelManager(kernel_name="python3") for _ in range(STOCK)]
    try:
        for manager in managers:
            manager.start_kernel(stderr=subprocess.DEVNULL)
            client = manager.client()
            client.start_channels(hb=False)
            client.execute("x = 1")
            client.get_shell_msg(timeout=60)
            client.stop_channels()
        pids = [manager.provisioner.pid for manager in managers]
        return sum(pss_of(psutil.Process(pid)) for pid in pids) / 1e6 / STOCK
    finally:
        for manager in managers:
            manager.shutdown_kernel(now=True)


def report(cells: int, processes: list[psutil.Process], stock: float) -> None:
    """Print one line and its parts."""
    parts = megabytes(processes)
    each = sum(parts.values()) / SESSIONS
    verdict = "met" if each <= TARGET_MB else "NOT met"
    print(
        f"{SESSIONS} idle sessions after {cells} cell(s): {each:.1f} MB PSS each, everything counted "
        f"(target {TARGET_MB:.0f}: {verdict}); a stock kernel {stock:.1f} MB, {stock / each:.1f} times as much"
    )
    print("   " + ", ".join(f"{kind} {size:.1f} MB" for kind, size in parts.items()) + f"; {len(processes)} processes")


def main() -> None:
    """Measure after one cell, and after three more."""
    stock = stock_kernel()
    with folders() as folder:
        with Client(session="first") as client:
            client.eval_code("1")
        end()  # it has compiled what it imported, for which it needs more memory than one of an installation
        done = 0
        for cells in (1, 3):
            for number in range(SESSIONS):
                with Client(f"idle-{number}") as client:
                    for _ in range(cells):
                        assert client.eval_code("x = [object()]").success
                        time.sleep(PAUSE_SECONDS)
            done += cells
            time.sleep(SETTLED_SECONDS)
            report(done, ours(folder / "STATE"), stock)


if __name__ == "__main__":
    main()
