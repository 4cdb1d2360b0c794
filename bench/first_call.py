"""The first call on a machine where nothing runs: a new program runs `1+1`, and everything starts for it.

Beside it stands a program that starts a stock ipykernel and runs the same. Each round has folders of its own; the
byte code is there, as in an installation.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from apart import end
from ratio import Case, compare, timed

ROUNDS = 10
OURS = """
from rlm_client import Client
with Client("first") as client:
    assert client.eval_code("1+1").result == "2"
"""
STOCK = """
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
assert client.execute_interactive("1+1", silent=True)["content"]["status"] == "ok"
client.stop_channels()
manager.shutdown_kernel(now=True)
"""


def run(program: str) -> None:
    """Run a program to its end."""
    subprocess.run([sys.executable, "-P", "-c", program], check=True)


def ours() -> float:
    """Begin with nothing; what was started ends afterwards, unmeasured."""
    folder = Path(tempfile.mkdtemp(prefix="rb"))
    os.environ |= {f"RLM_KERNEL_{kind}_DIR": str(folder / kind) for kind in ("RUNTIME", "STATE", "CONFIG")}
    taken = timed(lambda: run(OURS))
    end()
    shutil.rmtree(folder, ignore_errors=True)
    return taken


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compare("first call", [Case("stock ipykernel", lambda: run(STOCK)), Case("rlm-kernel", ours)], rounds=ROUNDS)
