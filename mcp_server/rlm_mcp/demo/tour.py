"""All of rlm-kernel in one story that a newcomer can follow (`rlm-kernel tour`)."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
from rich.console import Console
from rich.markup import escape

from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import StopDaemon
from rlm_ipc.errors import DaemonUnavailable
from rlm_ipc.supervisor_end import end_supervisor
from rlm_mcp.demo.run import failing
from rlm_mcp.demo.tour_steps import Tour


def main() -> int:
    """Tell the story; returns the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="rlm-tour-") as folder, own_folders(Path(folder)):
        tour = Tour(Path(folder) / "work")
        tour.folder.mkdir()
        return failing(lambda: anyio.run(tell, tour, console), "tour")


async def tell(tour: Tour, console: Console) -> None:
    """Go through the story, and print each step when it has happened."""
    began = time.perf_counter()
    number = 0
    async for step in tour.steps():
        number += 1
        console.print(f"\n[bold cyan]{number}. {escape(step.title)}[/]\n[dim]{escape(step.why)}[/]")
        for line in step.lines:
            console.print(escape(line))
    ran = "ran a program" if tour.facts["program ran"] else "tried to run programs all the time, and ran none"
    console.print(
        f"\nThe repository {ran}. Took {time.perf_counter() - began:.0f} s. `rlm-kernel docs tour` explains each step."
    )


@contextmanager
def own_folders(folder: Path) -> Iterator[None]:
    """Have a daemon and a state that are nobody else's: the tour kills them, and they end with it."""
    names = {f"RLM_KERNEL_{name.upper()}_DIR": folder / name for name in ("runtime", "state", "config")}
    names["JUPYTER_DATA_DIR"] = folder / "jupyter"
    before = {name: os.environ.get(name) for name in names}
    for name, path in names.items():
        path.mkdir(mode=0o700)
        os.environ[name] = str(path)
    try:
        yield
    finally:
        end_supervisor()
        with suppress(DaemonUnavailable), DaemonConnection(StopDaemon()) as control:
            control.wait_for_end()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
