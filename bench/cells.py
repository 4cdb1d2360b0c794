"""What checkpoints cost the cells that people write: those of the notebooks and of the pages.

    python bench/cells.py [--rounds N] [--each]

The same cell runs in three sessions that hold a text, under `checkpoint: off`, `lazy` and `strict`, in an order that
changes. A pause follows each, in which a lazy copy is taken: while one session prepares its next cell, no other runs.
A round goes through all cells. A cell counts by the median over the rounds of its time, divided by that under `off` in
the same round. The promise is about the median of the cells. Times are those of the supervisor: from the request to
the reply of the cell, without MCP around it. Cells that wait for an answer are left out.
"""

import ast
import asyncio
import itertools
import json
import os
import re
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from apart import folders

from rlm_contexts.store.store import ContextStore
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy
from rlm_sandbox.policy.model import CheckpointMode

ROOT = Path(__file__).parent.parent
MODES: tuple[CheckpointMode, ...] = ("off", "lazy", "strict")
MOST = {"lazy": 1.15, "strict": 2.0}
PAUSE = 0.1
LOG = "".join(
    f"10:00:{number % 60:02} {'ERROR' if number % 7 == 1 else 'INFO'} line {number}\n" for number in range(5000)
)
CALLS = frozenset(("agent", "run", "eval_code"))


def cells() -> Iterator[tuple[str, str]]:
    """Where each cell stands, and its code, in the order in which a reader runs them."""
    return (cell for cell in _written() if "mode='blocking'" not in cell[1])


def _written() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        notebook = json.loads(path.read_text())
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                code = "".join(cell["source"])
                inside = notebook["metadata"]["kernelspec"]["name"] == "rlm"
                yield from ((path.stem, each) for each in ([code] if inside else _passed(code)))
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))):
        for code in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE):
            client = "rlm_client" in code or "client." in code
            yield from ((path.name, each) for each in (_passed(code) if client else [code]))


def _passed(code: str) -> Iterator[str]:
    """The cells that code of a client sends: strings, or names of strings, by their place in a call."""
    tree = ast.parse(code)
    assigned = [
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ]
    texts = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
        given += node.args[-1:] if name in {"run", "eval_code"} else []
        for value in given if name in CALLS else ():
            found = texts.get(value.id) if isinstance(value, ast.Name) else value
            if isinstance(found, ast.Constant) and isinstance(found.value, str):
                yield found.value


async def measure(rounds: int) -> dict[tuple[str, str], list[dict[str, float]]]:
    """Seconds of every cell by mode, once for each round."""
    supervisor = await SupervisorClient.connect()
    store = ContextStore(Path(os.environ["RLM_KERNEL_STATE_DIR"]) / "store")
    sessions = {}
    for mode in MODES:
        policy = replace(load_policy("default"), checkpoint=mode)
        sessions[mode] = uuid.uuid4().hex[:12]
        await supervisor.spawn(SpawnRequest(sessions[mode]), policy)
        with store.shared_text(store.put_text(LOG)) as shared:
            await supervisor.bind(sessions[mode], "log", shared, "log", {})
    taken: dict[tuple[str, str], list[dict[str, float]]] = {}
    for number, cell in itertools.product(range(rounds + 1), cells()):
        seconds: dict[str, float] = {}
        for mode in MODES[number % 3 :] + MODES[: number % 3]:
            began = time.perf_counter()
            await supervisor.execute(sessions[mode], cell[1]).result()
            seconds[mode] = time.perf_counter() - began
            await asyncio.sleep(PAUSE)
        if number:
            taken.setdefault(cell, []).append(seconds)
    for kernel_id in sessions.values():
        await supervisor.shutdown(kernel_id)
    return taken


def main() -> None:
    """Print the promise, and whether it is kept."""
    rounds = int(sys.argv[sys.argv.index("--rounds") + 1]) if "--rounds" in sys.argv else 9
    taken = asyncio.run(measure(rounds))
    costs = {
        cell: {mode: statistics.median(one[mode] / one["off"] for one in rows) for mode in MOST}
        for cell, rows in taken.items()
    }
    off = {cell: statistics.median(one["off"] for one in rows) * 1000 for cell, rows in taken.items()}
    if "--each" in sys.argv:
        for cell, cost in sorted(costs.items(), key=lambda pair: off[pair[0]]):
            said = "; ".join(cell[1].split("\n"))[:60]
            print(f"{off[cell]:8.2f} ms  lazy {cost['lazy']:5.2f}  strict {cost['strict']:5.2f}  {cell[0]}: {said}")
    print(f"{len(costs)} cells, {rounds} rounds, median {statistics.median(off.values()):.2f} ms under off")
    for mode, most in MOST.items():
        low, middle, high = statistics.quantiles([cost[mode] for cost in costs.values()], n=4)
        extra = statistics.median(one[mode] - one["off"] for rows in taken.values() for one in rows) * 1000
        verdict = "met" if middle <= most else "NOT MET"
        print(
            f"  {mode:6} {middle:.2f} times (quartiles {low:.2f} to {high:.2f}, {extra:+.2f} ms) <= {most:g}  {verdict}"
        )


if __name__ == "__main__":
    with folders():
        main()
