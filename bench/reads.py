"""How long a read takes while a cell runs: `peek`, `scan`, `list_vars` and `var_info` of a session that is busy.

The promise is 100 ms. The cell runs for as long as the reads are made, in pure Python: the processor is busy too.
"""

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROUNDS = 25
TEXT = "".join(f"{number} {'ERROR' if number % 10 == 0 else 'INFO'} a line of this log\n" for number in range(50_000))
READS: dict[str, dict[str, Any]] = {
    "peek": {"name": "log", "offset": 100, "limit": 50},
    "scan": {"name": "log", "pattern": "error"},
    "list_vars": {},
    "var_info": {"name": "log"},
}


def main() -> None:
    """Print median and 99th percentile of each."""
    from rlm_client.client import Client
    from rlm_ipc.daemon_connection import DaemonConnection
    from rlm_ipc.daemon_requests import StopDaemon
    from rlm_ipc.supervisor_end import end_supervisor

    with Client("reads") as reader, Client("reads") as runner:
        reader.load_context("log", content=TEXT)
        runner.eval_code("x = 1")
        running = threading.Thread(target=lambda: runner.call("eval_code", code="while True: pass"), daemon=True)
        running.start()
        while reader.status()["kernel"]["state"] != "busy":
            time.sleep(0.01)
        for tool, arguments in READS.items():
            taken = []
            for _ in range(ROUNDS):
                began = time.perf_counter()
                reader.call(tool, **arguments)
                taken.append((time.perf_counter() - began) * 1000)
            taken.sort()
            print(f"{tool:10} while a cell runs: median {taken[ROUNDS // 2]:6.1f} ms, worst {taken[-1]:6.1f} ms")
        reader.interrupt()
        running.join()
    with DaemonConnection(StopDaemon()) as control:
        control.wait_for_end()
    end_supervisor()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="rkb", dir="/tmp") as folder:
        for variable in ("RLM_KERNEL_RUNTIME_DIR", "RLM_KERNEL_STATE_DIR"):
            os.environ[variable] = str(Path(folder, variable[11]))
            Path(os.environ[variable]).mkdir(mode=0o700)
        main()
