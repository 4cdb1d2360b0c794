"""The queue: what it costs to find what is next, to find a batch and to claim, against a bare transaction.

10,000 tasks with up to three edges each, some with paths, and 15 holders that work on paths of their own; once with
thousands ready, and once with next to nothing. Nothing else should run beside it.
"""

import random
from collections.abc import Callable, Iterator
from functools import partial

from frames_rows import bare, grown, measure
from ratio import Case

from rlm_memory.frames import edges, tree
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import EdgeType
from rlm_memory.frames.tree import Plan
from rlm_memory.store import Store
from rlm_memory.work import holders, leases, paths
from rlm_memory.work.ready import PRIORITIES, next_batch, ready

FRAMES = 10_000
WORKERS = 15
NOW = 1e9
LIMITS = {"ready": 0.5e-3, "next_batch": 1e-3, "claim": 1e-3}
"""Seconds at the median."""


def filled(store: Store, name: str, edged: float) -> FrameRow:
    """Make a tree with a queue; ``edged`` is the share of tasks that wait for others. Some are claimed."""
    _, root = grown(store, name)
    dice = random.Random(name)
    keys: list[int] = []
    with store.transaction():
        for number in range(FRAMES):
            wanted = Plan(f"task {number}", priority=dice.choice(PRIORITIES))
            row = tree.plan(store, wanted, root.key, author="bench", now=NOW - dice.uniform(0, 60 * 86_400))
            if keys and dice.random() < edged:
                for target in {dice.choice(keys[-200:]) for _ in range(3)}:
                    edges.add(store, row.key, target, EdgeType.BLOCKS, author="bench", now=NOW)
            if number % 10 == 0:
                paths.declare(store, row.key, [f"/src/m{number % 970}/"])
            keys.append(row.key)
        for number in range(WORKERS):
            worker(store, number, root)()
    return root


def worker(store: Store, number: int, root: FrameRow) -> Callable[[], None]:
    """Return what claims the next frame for a holder."""
    proof = f"w{root.key}-{number}"
    holder = holders.enlist(store, "connection", proof, label=proof, now=NOW)

    def run() -> None:
        leases.claim(store, holder, root.tree, now=NOW)

    return run


def asked(question: Callable[..., object], store: Store, root: FrameRow) -> None:
    """Ask for what is next."""
    question(store, root.tree, now=NOW)


def cases(store: Store) -> Iterator[Case]:
    """What is compared, the bare transaction first."""
    yield Case("bare transaction", bare(store))
    for name, edged in (("many", 0.2), ("few", 0.998)):
        root = filled(store, name, edged)
        found = ready(store, root.tree, now=NOW, most=FRAMES)
        print(f"{name}: {len(found)} of {FRAMES} frames are ready")
        yield Case(f"ready, {name}", partial(asked, ready, store, root))
        yield Case(f"next_batch, {name}", partial(asked, next_batch, store, root))
        if name == "many":
            yield Case(f"claim, {name}", worker(store, WORKERS, root))


if __name__ == "__main__":
    measure("the queue: rows", cases, LIMITS)
