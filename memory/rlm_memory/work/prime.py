"""Where was I, what is next, what may I touch: text for an agent that starts, or has lost its context.

It is the same bytes for the same rows: no times, no ages, no order that time changes. However large the tree is, no
more rows are read than can be shown, and the text stays within `TOKENS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlm_memory import locks
from rlm_memory.errors import UnknownFrame
from rlm_memory.frames.context import PER_TOKEN
from rlm_memory.frames.rows import FrameRow, above, frame_id, get
from rlm_memory.frames.states import Kind, Status
from rlm_memory.store import Store
from rlm_memory.work import progress
from rlm_memory.work.ready import count_ready, ready

TOKENS = 600
"""Tokens of the text, estimated."""
_HEAD = "Goals of this repository, kept by rlm-kernel, and the state of the work on them:"
_GOAL, _SHORT, _FIELD, _LIST = 240, 80, 260, 420
_MOST_OTHERS, _MOST_READY, _MOST_TAKEN, _MOST_FILES = 4, 3, 6, 12
_LEAVES = """
    SELECT f.key FROM frames f LEFT JOIN frame_progress p ON p.frame = f.key
    WHERE f.tree = :tree AND f.status = 'in_progress'
        AND (f.kind <> 'session' OR p.frame IS NOT NULL)
        AND NOT EXISTS (
            SELECT 1 FROM frames c WHERE c.parent = f.key AND c.status = 'in_progress' AND c.kind <> 'session')
    ORDER BY f.kind = 'session', coalesce(p.updated_at, 0) DESC, f.key DESC LIMIT :most"""
_TAKEN = """
    SELECT p.path, f.key FROM frames f JOIN frame_paths p ON p.frame = f.key
    WHERE f.tree = :tree AND f.holder IS NOT NULL AND f.freed_at IS NULL ORDER BY p.path, f.key LIMIT :most"""
_TREES = """
    SELECT DISTINCT f.tree FROM frames f WHERE f.status IN ('in_progress', 'planned') AND (
        :since_event = 0 OR f.key IN (SELECT frame FROM frame_events WHERE number > :since_event)
        OR f.key IN (SELECT frame FROM frame_progress WHERE updated_at >= :since_progress))
    UNION SELECT DISTINCT f.tree FROM frames f JOIN frame_events e ON e.frame = f.key WHERE e.number > :since_event
        AND :since_event > 0"""
_STATE = """
    SELECT (SELECT coalesce(max(number), 0) FROM frame_events) AS event,
        (SELECT coalesce(max(updated_at), 0.0) FROM frame_progress) AS progress,
        (SELECT count(*) FROM frames) AS frames,
        (SELECT count(*) FROM frame_paths) + (SELECT coalesce(sum(version), 0) FROM lock_projects) AS paths"""
_BLANK = re.compile(r"\s+")


def assemble(store: Store, tree: str, *, own: int | None = None) -> str:
    """Return the text of a tree; empty if nothing is in progress or planned. ``own`` is the caller's frame."""
    with store.transaction():
        goals = worked_on(store, tree, 1 + _MOST_OTHERS, own)
        lines = [_HEAD]
        if goals:
            lines += _in_full(store, goals[0])
        if goals[1:]:
            lines += ["Also in progress:", *(_in_short(store, row) for row in goals[1:])]
        lines += _ready(store, tree)
        claimed = store.rows(_TAKEN, tree=tree, most=_MOST_TAKEN + 1)
        if claimed:
            paths = ", ".join(
                f"{row['path'].removeprefix('/') or '/'} ({frame_id(row['key'])})" for row in claimed[:_MOST_TAKEN]
            )
            more = " and more" if len(claimed) > _MOST_TAKEN else ""
            lines.append(
                f"Only those working on these frames may write to: {_cut(paths, _LIST)}{more}. Everything else is free."
            )
        project = locks.of_tree(store, tree)
    if len(lines) == 1:
        return ""
    if project is not None:
        lines.append(
            f"The project has {project.files:,} files: the tool lock shows it, and what has changed since your last"
            " call."
        )
    if goals:
        lines.append(f"More: the tool frame(id={goals[0].id!r}), or `rlm-kernel frame {goals[0].id}`.")
    return _fitted(lines)


def worked_on(store: Store, tree: str, most: int, own: int | None = None) -> list[FrameRow]:
    """List the goals of a tree that are worked on and have no such goal below them; ``own`` first, then the latest.

    A frame that stands for a session is included only if work on it was seen.
    """
    with store.transaction():
        keys = store.scalars(_LEAVES, tree=tree, most=most)
        if own is not None and _runs(store, own, tree):
            keys = [own, *(key for key in keys if key != own)][:most]
        return [get(store, key) for key in keys]


def phase(data: Mapping[str, Any]) -> str:
    """Return the reported phase, or the last activity seen: tests that ran, files that changed, a commit."""
    if said := data.get("phase"):
        return _cut(said, _SHORT)
    results = data.get("test_results")
    if isinstance(results, dict) and results.get("failed"):
        return "testing"
    if data.get("uncommitted_changes"):
        return "implementing"
    if data.get("last_commit"):
        return "committed"
    return "testing" if results else "work in progress"


def next_step(data: Mapping[str, Any]) -> str:
    """Return the reported next step, or the one suggested by what was seen; empty if there is none."""
    if said := data.get("next_step"):
        return _cut(said, _FIELD)
    results = data.get("test_results")
    if isinstance(results, dict) and results.get("failed"):
        failing = results.get("failing_test")
        return f"fix the failing test {_cut(failing, _SHORT * 2)}" if failing else "fix the failing tests"
    errors = data.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[-1], dict):
        last = errors[-1]
        return _cut(f"look at {last.get('type', 'the error')} in {last.get('file') or last.get('command', '')}", _FIELD)
    return "commit the changes" if data.get("uncommitted_changes") and results else ""


def state(store: Store) -> tuple[int, float, int, int]:
    """Return values that change whenever the text of some tree may change; the first two are `trees`' ``since``."""
    (row,) = store.rows(_STATE)
    return row["event"], row["progress"], row["frames"], row["paths"]


def trees(store: Store, since: tuple[int, float, int, int] | None) -> list[str]:
    """List the trees that have changed since; without ``since``, those with anything open."""
    event, changed, *_ = since or (0, 0.0)
    return store.scalars(_TREES, since_event=event, since_progress=changed)


def _runs(store: Store, key: int, tree: str) -> bool:
    try:
        row = get(store, key)
    except UnknownFrame:
        return False
    return row.tree == tree and row.status is Status.IN_PROGRESS


def _in_full(store: Store, row: FrameRow) -> list[str]:
    data = progress.get(store, row.key).data
    goal = "no goal set" if row.kind is Kind.SESSION else _cut(row.goal, _GOAL)
    step = next_step(data)
    lines = [f"Resuming {row.id} from: {phase(data)}" + (f", next: {step}" if step else "")] if data else []
    lines.append(f"{row.id}: {goal}")
    upper = [f"{up.id} {_cut(up.goal, _SHORT)}" for up in above(store, row.key)[1:4] if up.kind is not Kind.SESSION]
    if upper:
        lines.append(f"  below: {' < '.join(upper)}")
    return lines + _fields(data)


def _fields(data: Mapping[str, Any]) -> list[str]:
    lines = []
    files = [str(path) for path in _items(data, "files_modified")]
    if files:
        latest, more = files[-_MOST_FILES:], len(files) - _MOST_FILES
        said = _cut(", ".join(latest), _LIST) + (f" and {more} before" if more > 0 else "")
        lines.append(f"  files: {said}" + (" (not committed)" if data.get("uncommitted_changes") else ""))
    results = data.get("test_results")
    if isinstance(results, dict):
        failing = f": {_cut(results['failing_test'], _FIELD)}" if results.get("failing_test") else ""
        lines.append(f"  tests: {results.get('passed', 0)} passed, {results.get('failed', 0)} failed{failing}")
    if commit := data.get("last_commit"):
        lines.append(f"  last commit: {_cut(commit, _SHORT)}")
    for decision in _items(data, "decisions")[-3:]:
        said = decision if not isinstance(decision, dict) else _reasoned(decision)
        lines.append(f"  decided: {_cut(said, _FIELD // 2)}")
    for error in _items(data, "errors")[-2:]:
        item = error if isinstance(error, dict) else {"message": error}
        where = f" at {item['file']}" if item.get("file") else ""
        lines.append(
            f"  error: {_cut(item.get('type', 'error'), _SHORT)}{where}: {_cut(item.get('message', ''), _FIELD // 2)}"
        )
    if about := data.get("context"):
        lines.append(f"  context: {_cut(about, _FIELD)}")
    return lines


def _reasoned(decision: Mapping[str, Any]) -> str:
    reason = decision.get("reason")
    return f"{decision.get('decision', '')} ({reason})" if reason else str(decision.get("decision", ""))


def _in_short(store: Store, row: FrameRow) -> str:
    data = progress.get(store, row.key).data
    goal = "no goal set" if row.kind is Kind.SESSION else _cut(row.goal, _SHORT)
    return f"  {row.id}: {goal}" + (f" ({phase(data)})" if data else "")


def _ready(store: Store, tree: str) -> list[str]:
    # Without ages: the order of two ready tasks must not change while nothing else does.
    found = ready(store, tree, now=0.0, most=_MOST_READY)
    if not found:
        return []
    more = count_ready(store, tree) - len(found)
    said = "; ".join(f"{frame_id(key)} {_cut(get(store, key).goal, _SHORT)}" for key in found)
    return [f"Ready to begin: {said}" + (f"; {more} more" if more > 0 else "")]


def _items(data: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = data.get(name)
    return value if isinstance(value, list) else []


def _cut(value: object, longest: int) -> str:
    said = _BLANK.sub(" ", str(value)[: 8 * longest]).strip()
    return said if len(said) <= longest else f"{said[: longest - 1]}\u2026"


def _fitted(lines: list[str]) -> str:
    """Leave out what is below the frame that is shown in full, last first, until the text fits."""
    room = TOKENS * PER_TOKEN
    while len("\n".join(lines)) > room:
        inner = [number for number, line in enumerate(lines) if line.startswith("  ")]
        del lines[inner[-1] if inner else -2]
    return "\n".join(lines)
