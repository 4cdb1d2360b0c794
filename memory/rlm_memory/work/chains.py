"""Chains: what a loop over the queue has done in its scope, so that a killed loop can continue where it was.

A chain has runs of agents, one after the other for each task. The contents of `data` belong to the loop and are stored
unchanged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory.errors import RowRequestError
from rlm_memory.frames.rows import FrameRow, frame_id, whole
from rlm_memory.records import values_of
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, upsert_into
from rlm_memory.work.items import Item
from rlm_memory.work.progress import Progress
from rlm_memory.work_schema import chain_runs, chains

_PUT, _PUT_RUN = upsert_into(chains), upsert_into(chain_runs)
_CHAINS = f"SELECT {columns_of(chains)} FROM work_chains"
_LATEST = f"{_CHAINS} WHERE number = :number"
_OPEN = f"{_CHAINS} WHERE tree = :tree AND ended_at IS NULL ORDER BY number"
_RUNS = "SELECT data FROM work_chain_runs WHERE chain = :chain ORDER BY number"
_IN = "IN (SELECT value FROM json_each(:keys))"
_ITEMS = f"SELECT frame, type, description, acceptance FROM frame_items WHERE frame {_IN}"
_PROGRESS = f"SELECT frame, data, updated_at FROM frame_progress WHERE frame {_IN}"
_EDGES = f"""
    SELECT frame, target FROM frame_edges WHERE frame {_IN} AND type IN ('blocks', 'waits_for', 'on_failure')
    ORDER BY frame, target"""
_BADLY = f"""
    SELECT parent, count(*) AS number FROM frames WHERE parent {_IN} AND status IN ('failed', 'blocked')
    GROUP BY parent"""


@dataclass(frozen=True, slots=True)
class ChainRow:
    """A chain. ``scope`` is a frame's key, None for the whole tree; ``loop`` is the process that runs it."""

    number: int
    tree: str
    scope: int | None
    loop: str
    ended_at: float | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Surveyed:
    """A frame with its edges and counts. ``after`` is what it waits or waited for, ``badly`` counts children."""

    row: FrameRow
    item: Item = field(default_factory=Item)
    progress: Progress = field(default_factory=Progress)
    after: Sequence[str] = ()
    badly: int = 0


def begin(store: Store, tree: str, scope: int | None, loop: str, data: Mapping[str, Any]) -> ChainRow:
    """Start a chain; its number is never reused."""
    with store.transaction():
        made = ChainRow(store.count("chain") + 1, tree, scope, loop, None, data)
        note(store, made)
    return made


def note(store: Store, chain: ChainRow) -> None:
    """Store the present state of a chain."""
    store.run(_PUT, **values_of(chain))


def latest(store: Store, number: int) -> ChainRow:
    """Return a chain.

    Raises:
        RowRequestError: there is none with that number, or no longer.
    """
    chain = store.record(ChainRow, _LATEST, number=number)
    if chain is None:
        raise RowRequestError(f"there is no chain {number}")
    return chain


def open_ones(store: Store, tree: str) -> list[ChainRow]:
    """List the open chains of a tree, oldest first."""
    return store.records(ChainRow, _OPEN, tree=tree)


def note_run(
    store: Store, chain: int, number: int, frame: int, data: Mapping[str, Any], ended_at: float | None
) -> None:
    """Store the present state of an agent's run."""
    with store.transaction():
        latest(store, chain)
        store.run(_PUT_RUN, chain=chain, number=number, frame=frame, ended_at=ended_at, data=json.dumps(dict(data)))


def runs(store: Store, chain: int) -> list[object]:
    """List the runs of a chain, in the order of their numbers."""
    return [json.loads(data) for data in store.scalars(_RUNS, chain=chain)]


def survey(store: Store, top: int) -> list[Surveyed]:
    """List a frame and everything below it with their edges and counts, top first."""
    with store.transaction():
        frames = whole(store, top)
        keys = json.dumps([row.key for row in frames])
        described = {frame: Item(*said) for frame, *said in store.rows(_ITEMS, keys=keys)}
        progress_of = {frame: Progress(json.loads(data), at) for frame, data, at in store.rows(_PROGRESS, keys=keys)}
        badly = {row["parent"]: row["number"] for row in store.rows(_BADLY, keys=keys)}
        after: defaultdict[int, list[str]] = defaultdict(list)
        for frame, target in store.rows(_EDGES, keys=keys):
            after[frame].append(frame_id(target))
    return [
        Surveyed(
            row,
            described.get(row.key, Item()),
            progress_of.get(row.key, Progress()),
            tuple(dict.fromkeys(after[row.key])),
            badly.get(row.key, 0),
        )
        for row in frames
    ]
