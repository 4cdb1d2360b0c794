"""Hand-offs: what the next agent needs to know about an ended frame, and how that decays.

Every end leaves one: the text of its compaction, until someone writes another. The full details are a text in the
content store, and the row has its digest. When a story is done, the details of the completed frames below it are
deleted; when an epic is done, its hand-offs are archived. Failed and blocked frames keep everything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import limits
from rlm_memory.errors import FrameStatusRefused
from rlm_memory.frames.results import LONGEST_SUMMARY, MOST_ITEMS
from rlm_memory.frames.rows import above, compaction_of, get
from rlm_memory.frames.states import Kind, Status
from rlm_memory.records import values_of
from rlm_memory.store import Store
from rlm_memory.tables import columns_of, upsert_into
from rlm_memory.work import progress
from rlm_memory.work_schema import handoffs as table

IN_SHORT = 600
"""Characters of a summary of two or three sentences."""
_LONGEST_ITEM = 500

_GET = f"SELECT {columns_of(table)} FROM frame_handoffs WHERE frame = :frame"
_PUT = upsert_into(table)
_UNDER = """
    WITH RECURSIVE under(key) AS (
        SELECT key FROM frames WHERE parent = :done
        UNION ALL SELECT f.key FROM under JOIN frames f ON f.parent = under.key
    )"""
# A frame in progress, or one that ended badly, stays as it is; so does everything below it.
_COMPACT = f"""{_UNDER}
    UPDATE frame_handoffs SET details = NULL, compacted_at = :now
    WHERE details IS NOT NULL AND status = 'PASS' AND frame IN (
        SELECT under.key FROM under JOIN frames f ON f.key = under.key
        WHERE f.status = 'completed' AND (f.holder IS NULL OR f.freed_at IS NOT NULL))
    RETURNING frame"""
_ARCHIVE = f"""{_UNDER}
    UPDATE frame_handoffs SET archived_at = :now
    WHERE archived_at IS NULL AND status = 'PASS' AND frame IN (
        SELECT under.key FROM under JOIN frames f ON f.key = under.key WHERE f.status = 'completed')"""
_DONE = """
    SELECT key, kind FROM frames WHERE status = 'completed' AND kind IN ('story', 'epic')
    AND (:tree IS NULL OR tree = :tree) ORDER BY depth DESC, key"""
_BADLY = "SELECT count(*) FROM frames WHERE parent = :parent AND status IN ('failed', 'blocked')"


class Result(StrEnum):
    """The outcome of a frame in hand-offs."""

    PASS = "PASS"
    FAIL = "FAIL"
    BLOCKED = "BLOCKED"


_RESULTS = {Status.COMPLETED: Result.PASS, Status.FAILED: Result.FAIL, Status.BLOCKED: Result.BLOCKED}


@dataclass(frozen=True, slots=True)
class HandOff:
    """A hand-off. ``details`` is the digest of a text of ``size`` bytes; None if there is none, or no longer."""

    frame: int
    status: Result
    summary: str
    files: Sequence[str]
    decisions: Sequence[str]
    details: str | None
    size: int
    created_at: float
    compacted_at: float | None = None
    archived_at: float | None = None


@dataclass(frozen=True, slots=True)
class Boundaries:
    """What the end of a frame has completed above it: ids, None while something is open or has ended badly.

    ``failed`` says that everything has ended, but not everything successfully.
    """

    story: str | None = None
    epic: str | None = None
    failed: bool = False

    @property
    def story_completed(self) -> bool:
        """Whether all of a story is done; someone has to pop it."""
        return self.story is not None

    @property
    def epic_completed(self) -> bool:
        """Whether all of an epic is done."""
        return self.epic is not None


def hand_off(
    store: Store,
    key: int,
    *,
    status: Result,
    summary: str,
    now: float,
    files: Sequence[str] = (),
    decisions: Sequence[str] = (),
    details: str | None = None,
    size: int = 0,
) -> HandOff:
    """Write the hand-off of a frame, in place of the previous one.

    Raises:
        UnknownFrame, FrameStatusRefused: there is none, or it stands for a session.
    """
    with store.transaction():
        row = get(store, key)
        if row.kind is Kind.SESSION:
            raise FrameStatusRefused(row.id, row.status, "hand off", "it stands for a session: name a goal")
        text = limits.storable(summary.strip(), LONGEST_SUMMARY)
        written = HandOff(key, status, text, _items(files), _items(decisions), details, size, now)
        store.run(_PUT, **values_of(written))
    return written


def of_frame(store: Store, key: int) -> HandOff | None:
    """Return the hand-off of a frame: the one written for it, otherwise what its end left; None if it has not ended.

    Raises:
        UnknownFrame: there is no such frame.
    """
    with store.transaction():
        if (written := store.record(HandOff, _GET, frame=key)) is not None:
            return written
        row, compaction = get(store, key), compaction_of(store, key)
    if compaction is None or row.status not in _RESULTS:
        return None
    data = progress.get(store, key).data
    files = list(dict.fromkeys((*compaction.artifacts, *map(str, data.get("files_modified", ())))))
    decisions = list(dict.fromkeys((*compaction.decisions, *map(_said, data.get("decisions", ())))))
    return HandOff(key, _RESULTS[row.status], compaction.text, files, decisions, None, 0, compaction.at)


def short(said: str) -> str:
    """Return the first sentences of a summary."""
    return limits.storable(said, IN_SHORT)


def boundaries(store: Store, key: int) -> Boundaries:
    """Return what the end of a frame has completed above it."""
    done: dict[Kind, str] = {}
    failed = False
    with store.transaction():
        for upper in above(store, key)[1:]:
            if upper.kind not in {Kind.STORY, Kind.EPIC} or upper.open_children:
                break
            if store.scalar(_BADLY, parent=upper.key):
                failed = True
                break
            done.setdefault(upper.kind, upper.id)
            if upper.status is not Status.COMPLETED:
                break
    return Boundaries(done.get(Kind.STORY), done.get(Kind.EPIC), failed)


def decay(store: Store, *, now: float, tree: str | None = None) -> list[int]:
    """Delete what completed stories and epics no longer need. Return the frames whose details were deleted.

    Repeating it changes nothing more: call it after an end, and when a daemon starts.
    """
    gone: list[int] = []
    with store.transaction():
        for done in store.rows(_DONE, tree=tree):
            gone += (row["frame"] for row in store.returned(_COMPACT, done=done["key"], now=now))
            if done["kind"] == Kind.EPIC:
                store.run(_ARCHIVE, done=done["key"], now=now)
    return gone


def _items(said: Sequence[str]) -> list[str]:
    return [limits.storable(item, _LONGEST_ITEM) for item in said[:MOST_ITEMS]]


def _said(decision: object) -> str:
    """Return a decision of work in progress as text: what was decided, and why."""
    if isinstance(decision, dict) and "decision" in decision:
        why = decision.get("reason")
        return f"{decision['decision']} ({why})" if why else str(decision["decision"])
    return decision if isinstance(decision, str) else json.dumps(decision)
