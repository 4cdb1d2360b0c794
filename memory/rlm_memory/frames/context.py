"""The part of the tree that a model sees: XML of bounded size, equal bytes for equal rows, the stable part first.

::

    <flame_context>
      <frame id="f1" kind="session" status="in_progress"><goal>…</goal>
        <folded children="64"/>                     what ended long ago, one line; only an end changes it
        <child id="f7" status="completed"><summary>…</summary><log>…</log></child>      in the order in which they ended
        <frame …> … the path down to the current frame, in full … </frame>
        <child id="f9" status="in_progress"><goal>…</goal></child>                      what may change, after it
      </frame>
      <project files="1161" tool="lock"/>      if someone has used the lock of the project
    </flame_context>

It contains no times, ages or counts of others. A frame that ends is appended to the list of ended frames, so a prompt
cache keeps everything before it. Open frames come after the current frame. However large the tree is, no more rows are
read than can be shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from sqlite3 import Row

from rlm_ipc.late_dataclasses import dataclass
from rlm_memory import locks
from rlm_memory.frames.results import IN_LINE, MOST_SHOWN, SHOWN
from rlm_memory.frames.rows import frame_id, get
from rlm_memory.frames.states import Status
from rlm_memory.store import Store

BUDGET = 4000
"""Tokens of a context, estimated: ancestors 1,500, siblings 1,500, the frame 800, markup 200."""
LEAST_BUDGET = 600
"""Number of tokens that the path from the root down needs at least."""
PER_TOKEN = 4
"""Estimated characters per token."""
NEAREST = 12
"""Number of ancestors shown besides the root; those in between are counted."""
_UNCLES = 3
"""Number of ancestors whose ended children are shown, besides those of the parent."""
_UNCLE = 100
"""Characters of a compaction shown for those."""
_STEP = 8
"""When room is short, up to this many lines are dropped at once, so that only one end in this many changes the prefix.
"""


@dataclass(frozen=True, slots=True)
class _Room:
    """Characters for one goal above, for the frame's own goal, and for ended and open children by nearness."""

    goal: int
    own: int
    ended: int
    uncles: int
    still: int


_WHOLE = _Room(goal=120, own=1400, ended=SHOWN, uncles=600, still=700)
_WIDEST = _WHOLE.own + 2 * _WHOLE.ended + _UNCLES * _WHOLE.uncles + 2 * _WHOLE.still + _UNCLES * (_WHOLE.still // 4)
_MARKUP = 85
"""Characters of markup around one goal on the path down."""
_BESIDE = 300
"""Characters of the lines that count what is not shown, and of the outermost tags."""

_ABOVE = """
    WITH RECURSIVE above(key, parent, step) AS (
        SELECT key, parent, 0 FROM frames WHERE key = :named
        UNION ALL
        SELECT frames.key, frames.parent, step + 1 FROM frames JOIN above ON frames.key = above.parent
        WHERE step < :most
    ) SELECT frames.key, kind, status, goal, depth, tree, folded, folded_count FROM above JOIN frames USING (key)
    ORDER BY step DESC"""
_TOP = """
    SELECT key, kind, status, goal, depth, tree, folded, folded_count FROM frames
    WHERE tree = :of AND parent IS NULL"""
_ENDED = """
    SELECT frames.key, frames.status, (
        SELECT c.text FROM frame_compactions c WHERE c.frame = frames.key ORDER BY c.number DESC LIMIT 1
    ) AS summary FROM frames WHERE parent = :named AND ended > :folded ORDER BY ended LIMIT :most"""
_OPEN = """
    SELECT key, status, goal FROM frames
    WHERE parent = :named AND status IN ('in_progress', 'planned') AND key <> :skip ORDER BY status, key LIMIT :most"""
_ILLEGAL = "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Characters that XML 1.0 cannot hold, lone surrogates included: a goal must not break the document for a parser.

Compiling the pattern takes 5 ms, so that happens when it is first used.
"""


def assemble(store: Store, key: int, *, tokens: int = BUDGET) -> str:
    """Return the context of a frame within ``tokens`` (estimated; `LEAST_BUDGET` at least).

    Raises:
        UnknownFrame: there is no such frame.
    """
    room = _scaled(max(tokens, LEAST_BUDGET))
    with store.transaction():
        chain = store.rows(_ABOVE, named=key, most=NEAREST)
        if not chain:
            get(store, key)  # raises
        if chain[0]["depth"]:
            chain = [*store.rows(_TOP, of=chain[0]["tree"]), *chain]
        inner = _current(store, chain[-1], room)
        for nearness, (row, below) in enumerate(reversed(list(pairwise(chain)))):
            inner = _around(store, row, below, inner, room, nearness)
        lock = locks.of_tree(store, chain[-1]["tree"])
    project = [] if lock is None else [f'<project files="{lock.files}" tool="lock"/>']
    return "\n".join(["<flame_context>", *inner, *project, "</flame_context>"])


def _scaled(tokens: int) -> _Room:
    """Divide the room: the path down comes first, lists of others get the rest."""
    characters = tokens * PER_TOKEN
    chain = NEAREST + 2
    goal = max(1, min(_WHOLE.goal, int(characters * 0.45 / chain) - _MARKUP))
    share = min(1.0, (characters - chain * (goal + _MARKUP) - _BESIDE) / _WIDEST)
    return _Room(
        goal, int(_WHOLE.own * share), int(_WHOLE.ended * share), int(_WHOLE.uncles * share), int(_WHOLE.still * share)
    )


def _around(store: Store, row: Row, below: Row, inner: Sequence[str], room: _Room, nearness: int) -> list[str]:
    """Render a frame on the path down: its goal, ended children, the next frame down in full, open children."""
    before: Sequence[str] = ()
    behind: Sequence[str] = ()
    if nearness == 0:
        before = _ended(store, row, room.ended, IN_LINE)
        behind = _still(store, row, below["key"], room.still)
    elif nearness <= _UNCLES:
        before = _ended(store, row, room.uncles, _UNCLE)
        behind = _still(store, row, below["key"], room.still // 4)
    lines = [_head(row), _goal(row, room.goal), *before]
    if gap := below["depth"] - row["depth"] - 1:
        lines.append(f'<elided frames="{gap}"/>')
    return [*lines, *inner, *behind, "</frame>"]


def _current(store: Store, row: Row, room: _Room) -> list[str]:
    """Render the frame itself: its goal, the results of its children, the open frames below it."""
    ended = _ended(store, row, room.ended, IN_LINE)
    still = _still(store, row, 0, room.still)
    return [_head(row), _goal(row, room.own), *ended, *still, "</frame>"]


def _ended(store: Store, row: Row, room: int, longest: int) -> list[str]:
    """Render the ended children, oldest first, after one line that counts those without room."""
    found = store.rows(_ENDED, named=row["key"], folded=row["folded"], most=2 * MOST_SHOWN)
    lines = [_child(child, "summary", child["summary"] or "", longest) for child in found]
    first, left = 0, sum(map(len, lines)) + len(lines)
    while left > room:
        left -= len(lines[first]) + 1
        first += 1
    if first:
        # Cut by position among all ended children, not among those shown, so that the cut stays in place for several
        # ends. Never drop more at once than fit: the latest is always shown if there is room for it.
        step = max(1, min(_STEP, len(lines) - first))
        first += -(row["folded_count"] + first) % step
    folded = row["folded_count"] + first
    return [*([f'<folded children="{folded}"/>'] if folded else []), *lines[first:]]


def _still(store: Store, row: Row, skip: int, room: int) -> list[str]:
    """Render children that run or are planned, running ones first."""
    lines: list[str] = []
    for child in store.rows(_OPEN, named=row["key"], skip=skip, most=room // 50 + 2):
        line = _child(child, "goal", child["goal"], 120)
        room -= len(line) + 1
        if room < 0:
            return [*lines, "<more/>"]
        lines.append(line)
    return lines


def _head(row: Row) -> str:
    return f'<frame id="{frame_id(row["key"])}" kind="{row["kind"]}" status="{row["status"]}">'


def _goal(row: Row, longest: int) -> str:
    return f"<goal>{_cut(row['goal'], longest)}</goal>"


def _child(row: Row, tag: str, said: str, longest: int) -> str:
    name = frame_id(row["key"])
    log = f"<log>frame-{name}.md</log>" if tag == "summary" else ""
    return f'<child id="{name}" status="{Status(row["status"])}"><{tag}>{_cut(said, longest)}</{tag}>{log}</child>'


def _cut(said: str, longest: int) -> str:
    """Return text that cannot be mistaken for markup. It is cut before it is escaped, so that no entity is split."""
    said = re.sub(_ILLEGAL, "\N{REPLACEMENT CHARACTER}", said[: longest + 1])
    escaped = escape(said if len(said) <= longest else f"{said[: longest - 1]}…", quote=False)
    while len(escaped) > longest and said:
        said = said[: len(said) * 3 // 4]
        escaped = escape(f"{said}…", quote=False)
    return escaped
