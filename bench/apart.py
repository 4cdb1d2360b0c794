"""A daemon of a benchmark's own, in folders of its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


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


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that descend from it; nothing once it has ended."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def pss_of(process: psutil.Process) -> int:
    """Return the bytes of memory that a process takes, shared pages by its share; nothing once it has ended."""
    with suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0
