"""A daemon of a benchmark's own, in folders of its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folders() -> Iterator[Path]:
    """Have the daemon that is started from here on live in a new folder, until it is ended with all that is its.

    Byte code is kept as in an installation: what is imported is compiled once.
    """
    with tempfile.TemporaryDirectory(prefix="rb") as name:
        for kind in ("RUNTIME", "STATE", "CONFIG"):
            os.environ[f"RLM_KERNEL_{kind}_DIR"] = f"{name}/{kind}"
        os.environ["PYTHONPYCACHEPREFIX"] = f"{name}/bytecode"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            yield Path(name)
        finally:
            end()


def end() -> None:
    """End the daemon and its supervisor."""
    stop = [sys.executable, "-P", "-m", "rlm_mcp", "daemon", "stop", "--all"]
    subprocess.run(stop, check=True, stdout=subprocess.DEVNULL)
