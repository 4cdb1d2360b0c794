"""How long a read takes while a cell runs: `peek`, `scan`, `list_vars` and `var_info` of a session that is busy.

The promise is 100 ms. The cell runs for as long as the reads are made, in pure Python: the processor is busy too.
"""

import threading
import time
from functools import partial
from typing import Any

from apart import folders
from ratio import timed

from rlm_client.client import Client

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
    with Client("reads") as reader, Client("reads") as runner:
        reader.load_context("log", content=TEXT)
        runner.eval_code("x = 1")
        running = threading.Thread(target=lambda: runner.call("eval_code", code="while True: pass"), daemon=True)
        running.start()
        while reader.status()["kernel"]["state"] != "busy":
            time.sleep(0.01)
        for tool, arguments in READS.items():
            call = partial(reader.call, tool, **arguments)
            taken = sorted(timed(call) * 1000 for _ in range(ROUNDS))
            print(f"{tool:10} while a cell runs: median {taken[ROUNDS // 2]:6.1f} ms, worst {taken[-1]:6.1f} ms")
        reader.interrupt()
        running.join()


if __name__ == "__main__":
    with folders():
        main()
