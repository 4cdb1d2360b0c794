"""`checkpoint: durable`: what a save to disk takes of the idle time, writes, and gives back, beside plain pickle.

For each kind of data, in a session of its own: the first save, a save after one small variable has changed, and the way
back (the variables are saved, every kernel is gone, and a cell asks for them). Beside it, in a process without a
session: `pickle` of the same objects to a file with `fsync`, and reading that again. The figures take turns.

A save is timed in the daemon: from the question to the kernel until the index is on the disk.
"""

import argparse
import asyncio
import os
import pickle
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from apart import folders

from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.caller import Caller
from rlm_mcp.service.cells.runs import Waiting
from rlm_mcp.service.service import Service
from rlm_mcp.service.sessions.sessions import Session

POLICY = """
extends: data
checkpoint: durable
limits: {unsaved_seconds: 3600, unsaved_cells: 1000000, memory_bytes: 2 GiB}
"""
DATA = {
    "ten small variables": "data = [dict(a=1, b=[1, 2]) for _ in range(10)]",
    "a DataFrame of 100 MB": "import numpy as np, pandas as pd\n"
    "data = pd.DataFrame(np.random.default_rng(1).random((1_310_720, 10)))",
    "a million small objects": "data = [(n, str(n)) for n in range(333_333)]",
}
LOOK = "len(data), small"


CLIENT = ClientInfo(cwd="/", env={"RLM_KERNEL_POLICY": "bench"})


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """How many seconds something takes."""
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def run(service: Service, session: Session, code: str) -> str:
    """Run a cell to its end; returns its result."""
    caller = Caller(CLIENT, session.id)
    cell = service.runs.start(session, code)
    answer = await service.follow(session, cell, caller, patient=True)
    assert answer.fields["error"] is None, answer.fields
    return str(answer.fields.get("result"))


def on_disk(folder: Path) -> set[tuple[str, int, int]]:
    """Every file of variables: its name, its inode, its size."""
    found = ((path, path.stat()) for path in folder.glob("*.pieces/*"))
    return {(str(path), told.st_ino, told.st_size) for path, told in found}


class Bench:
    """Measures one kind of data."""

    def __init__(self, service: Service, folder: Path, name: str, code: str) -> None:
        self.service, self.folder, self.name, self.code = service, folder, name, code
        self.seconds: dict[str, list[float]] = {}
        self.size = self.written = 0

    async def turn(self, number: int) -> None:
        """One round of everything."""
        before = on_disk(self.folder)
        session = await self.service.sessions.open(CLIENT, f"s{number}-{len(self.name)}")
        await run(self.service, session, f"{self.code}\nsmall = 1")
        await self._save("first save", session)
        first = on_disk(self.folder)
        self.size = sum(size for _, _, size in first - before)
        await run(self.service, session, "small = 2")
        await self._save("save after a small change", session)
        self.written = sum(size for _, _, size in on_disk(self.folder) - first)
        kernel = session.kernel
        await kernel.change_policy(session.row, session.pinned)  # which ends it
        seconds = await timed(lambda: run(self.service, session, LOOK))
        self.seconds.setdefault("back, with a new kernel", []).append(seconds)
        await self.service.sessions.end(session)
        self._plain()

    async def _save(self, what: str, session: Session) -> None:
        async def save() -> None:
            reason = await self.service.snapshots.reopening.save_pieces(session)
            assert not reason, reason

        self.seconds.setdefault(what, []).append(await timed(save))

    def _plain(self) -> None:
        names: dict[str, Any] = {}
        exec(self.code, names)
        with tempfile.NamedTemporaryFile(dir=self.folder.parent) as file:
            began = time.perf_counter()
            pickle.dump(names["data"], file, 5)
            file.flush()
            os.fsync(file.fileno())
            saved = time.perf_counter()
            file.seek(0)
            pickle.load(file)
            self.seconds.setdefault("pickle and fsync", []).append(saved - began)
            self.seconds.setdefault("unpickle", []).append(time.perf_counter() - saved)

    def report(self) -> None:
        """Print the medians, and how often longer each takes than plain pickle."""
        medians = {what: statistics.median(values) for what, values in self.seconds.items()}
        print(f"{self.name}: {self.size / 1e6:.1f} MB on disk, {self.written / 1e6:.2f} MB written for a small change")
        for what, seconds in medians.items():
            plain = medians["unpickle" if "back" in what else "pickle and fsync"]
            print(f"  {what:<28} {seconds * 1e3:8.1f} ms  {seconds / plain:6.2f} x")


async def main(rounds: int) -> None:
    """Measure, in turns."""
    with folders() as folder:
        policies = folder / "CONFIG" / "policies"
        policies.mkdir(parents=True)
        (policies / "bench.yaml").write_text(POLICY)
        async with Service.open(waiting=Waiting(longest=600.0)) as service:
            lasting = folder / "STATE" / "snapshots" / "lasting"
            lasting.mkdir(parents=True)
            benches = [Bench(service, lasting, name, code) for name, code in DATA.items()]
            for number in range(rounds):
                for bench in benches:
                    await bench.turn(number)
        for bench in benches:
            bench.report()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(main(parser.parse_args().rounds))
