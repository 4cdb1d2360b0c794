"""Results of frames: the outcomes of pops, the compactions that others see, and the folding of old ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import journal, limits
from rlm_memory.frames.rows import FrameRow, compaction_of, get
from rlm_memory.frames.states import Status
from rlm_memory.store import Store

Children = Literal["refuse", "adopt", "fail"]
"""What happens to the running frames below one that ends."""

LONGEST_SUMMARY = 16_384
"""Characters kept of a summary."""
MOST_ITEMS, LONGEST_ITEM = 100, 500
"""Artifacts and decisions kept, and characters of each."""
IN_LINE = 300
"""Characters of a compaction in the contexts of other frames."""
SHOWN, MOST_SHOWN = 3600, 24
"""Characters and children that a context shows of ended ones; beyond that, an end folds the older half."""
LINE = 90
"""Characters of markup around one compaction."""
_LAST_CELLS = 3
"""Cells that an extract quotes."""
_GOAL, _QUOTED = 120, 400
"""Characters that an extract has of the goal, and of what a cell wrote last."""

_COMPACT = """
    INSERT INTO frame_compactions (frame, source, text, artifacts, decisions, at)
    VALUES (:frame, :source, :text, :artifacts, :decisions, :at)"""
_COSTS = """
    SELECT frames.ended, :line + coalesce(min(length(c.text), :longest), 0) AS cost FROM frames
    LEFT JOIN frame_compactions c
        ON c.number = (SELECT max(l.number) FROM frame_compactions l WHERE l.frame = frames.key)
    WHERE frames.parent = :named AND frames.ended > (SELECT folded FROM frames WHERE key = :named)
    ORDER BY frames.ended"""
_FOLD = "UPDATE frames SET folded = :to, folded_count = folded_count + :more WHERE key = :named"


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A value for a frame above, already in the content store. ``form`` is ``text`` or ``object``."""

    name: str
    digest: str
    size: int
    form: str = "object"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a frame as its caller reports it."""

    status: Status
    summary: str = ""
    artifacts: Sequence[str] = ()
    decisions: Sequence[str] = ()
    hand_over: Sequence[str] = ()
    children: Children = "refuse"
    written: Sequence[str] = ()
    """Modified files that were detected: artifacts besides those that the caller names. Not part of the request."""

    def digest(self) -> str:
        """Hash the request, so that a repeated pop is recognized."""
        lists = list(self.artifacts), list(self.decisions), sorted(self.hand_over)
        asked = [self.status, self.summary, *lists, self.children]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Ended:
    """What a pop has done, with frames named by id.

    ``parent`` is where to continue, ``source`` who wrote the summary.
    """

    frame: str
    status: str
    summary: str
    source: str
    parent: str
    failed: Sequence[str]
    adopted: Sequence[str]
    invalidated: Sequence[str]
    handed_over: Sequence[str]


@dataclass(frozen=True, slots=True)
class Invalidated:
    """What an invalidation has done, by ids; the ``running`` frames keep running until someone pops them."""

    frame: str
    invalidated: Sequence[str]
    running: Sequence[str]


def compact(store: Store, row: FrameRow, outcome: Outcome, now: float) -> tuple[str, str]:
    """Write what others see of a frame that ends. Return the text and its source."""
    summary = outcome.summary.strip()
    said = limits.storable(summary or _extract(store, row, outcome.status), LONGEST_SUMMARY)
    source = "caller" if summary else "extract"
    artifacts, decisions = _items([*dict.fromkeys((*outcome.artifacts, *outcome.written))]), _items(outcome.decisions)
    _compact(store, row.key, source, said, artifacts, decisions, now)
    return said, source


def summarize(store: Store, key: int, said: str, *, now: float) -> bool:
    """Replace an extract with a model's summary.

    Return False if the frame has a summary already, or runs again.

    Raises:
        UnknownFrame: there is no such frame.
    """
    with store.transaction():
        row, latest = get(store, key), compaction_of(store, key)
        if row.ended is None or latest is None or latest.source == "caller":
            return False
        text = limits.storable(said, LONGEST_SUMMARY)
        _compact(store, key, "model", text, latest.artifacts, latest.decisions, now)
        fold(store, row.parent)
        return True


def fold(store: Store, parent: int | None) -> None:
    """Fold the older half of the ended children when they take too much room, so that prefixes change rarely."""
    if parent is None:
        return
    with store.transaction():
        rows = store.rows(_COSTS, named=parent, longest=IN_LINE, line=LINE)
        total = sum(row["cost"] for row in rows)
        if total <= SHOWN and len(rows) <= MOST_SHOWN:
            return
        folded = 0
        while total > SHOWN // 2 or len(rows) - folded > MOST_SHOWN // 2:
            total -= rows[folded]["cost"]
            folded += 1
        store.run(_FOLD, named=parent, to=rows[folded - 1]["ended"], more=folded)


def _compact(
    store: Store, frame: int, source: str, text: str, artifacts: Sequence[str], decisions: Sequence[str], now: float
) -> None:
    lists = {"artifacts": json.dumps(artifacts), "decisions": json.dumps(decisions)}
    store.run(_COMPACT, frame=frame, source=source, text=text, at=now, **lists)


def _items(said: Sequence[str]) -> list[str]:
    return [limits.storable(item, LONGEST_ITEM) for item in said[:MOST_ITEMS]]


def _extract(store: Store, row: FrameRow, status: Status) -> str:
    """Build a summary from the frame's own cells when nobody has given one."""
    said = f"{status.value}: {limits.storable(row.goal, _GOAL)}"
    ran, failed = journal.tally(store, row.key)
    if not ran:
        return f"{said} (no cell ran)"
    cells = journal.of_frame(store, row.key, last=_LAST_CELLS)
    wrote = [("wrote" if cell.status == "ok" else cell.status, cell.output.strip()[-_QUOTED:]) for cell in cells]
    counted = f"{said} ({ran} cell{'s' * (ran > 1)}, {failed} failed)"
    return "\n".join([counted, *(f"{how}: {what}" for how, what in wrote if what)])
