"""Beads: one issue a line. What it says beyond a task (labels, comments, gates, …) is kept as it is.

Issues that nobody can work on (messages, gates, agents, …) become stories, which are never handed out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rlm_ipc.messages import JsonObject
from rlm_mcp.formats.trackers.tasks import OPEN, FileFault, State, Tracked, joined

_STATES: Mapping[str, State] = {
    "closed": "completed",
    "blocked": "blocked",
    "deferred": "blocked",
    "tombstone": "invalidated",
}
_STATUS: Mapping[State, str] = {
    OPEN: "open", "completed": "closed", "blocked": "blocked", "invalidated": "closed",
}  # fmt: skip
_WORK = {"task": "feature", "feature": "feature", "bug": "bug", "chore": "chore", "spike": "spike", "decision": "spike"}
_TYPES = {"feature": "feature", "bug": "bug", "chore": "chore", "spike": "spike", "api": "feature", "test": "task"}
_PRIORITIES = (1000, 750, 500, 250, 250)
_EDGES = {
    "blocks": "blocks",
    "waits-for": "waits_for",
    "conditional-blocks": "on_failure",
    "discovered-from": "found_in",
    "supersedes": "supersedes",
}
_BACK = {ours: theirs for theirs, ours in _EDGES.items()}
_PARENT = "parent-child"
# As Go writes JSON.
_ESCAPED = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class Beads:
    """The format of ``bd export`` and of ``.beads/issues.jsonl``."""

    def read(self, text: str) -> list[Tracked]:
        """Return the issues, in the order of the file."""
        found = []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                issue = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise FileFault(f"line {number} is not JSON ({error})") from error
            if not isinstance(issue, dict) or not isinstance(issue.get("id"), str) or not issue["id"]:
                raise FileFault(f"line {number} is not an issue: it has no id")
            if not isinstance(issue.get("title"), str) or not issue["title"].strip():
                raise FileFault(f"{issue['id']} (line {number}) has no title")
            found.append(self.again(issue, issue["id"]))
        return found

    def again(self, data: JsonObject, alias: str) -> Tracked:
        """Return the task that an issue is."""
        kind = str(data.get("issue_type", "task"))
        edges = [(_EDGES[type_], on) for type_, on in _dependencies(data) if type_ in _EDGES]
        parents = [on for type_, on in _dependencies(data) if type_ == _PARENT]
        state = _STATES.get(str(data.get("status", "open")), OPEN)
        priority = data.get("priority", 2)
        return Tracked(
            alias=alias,
            goal=str(data["title"]).strip(),
            kind="epic" if kind == "epic" else "task" if kind in _WORK else "story",
            type=_WORK.get(kind, "feature"),
            priority=_PRIORITIES[priority] if type(priority) is int and 0 <= priority < len(_PRIORITIES) else 500,
            state=state,
            why="" if state == OPEN else str(data.get("close_reason") or data.get("status")),
            description=joined(data, "description", "design", "notes"),
            acceptance=str(data.get("acceptance_criteria") or ""),
            parent=parents[0] if parents else None,
            edges=tuple(dict.fromkeys(edges)),
            data=data,
        )

    def changed(self, data: JsonObject, ours: Tracked, base: Tracked, now: float) -> JsonObject:
        """Return the issue with what has changed here."""
        fields = dict(data)
        if ours.goal != base.goal:
            fields["title"] = ours.goal
        if ours.description != base.description:
            fields["description"] = ours.description
            fields.pop("design", None)
            fields.pop("notes", None)
        if ours.acceptance != base.acceptance:
            fields["acceptance_criteria"] = ours.acceptance
        if ours.priority != base.priority:
            fields["priority"] = _PRIORITIES.index(ours.priority)
        if ours.type != base.type:
            fields["issue_type"] = _TYPES[ours.type]
        if ours.state != base.state:
            fields["status"] = _STATUS[ours.state]
            fields.pop("closed_at", None)
            fields.pop("close_reason", None)
            if fields["status"] == "closed":
                fields |= {"closed_at": _time(now), "close_reason": ours.why}
        added = [edge for edge in ours.edges if edge not in base.edges]
        gone = {(_BACK[type_], on) for type_, on in base.edges if (type_, on) not in ours.edges}
        if added or gone:
            kept = [
                one for one in data.get("dependencies", []) if (one.get("type"), one.get("depends_on_id")) not in gone
            ]
            fields["dependencies"] = [*kept, *(_dependency(ours.alias, _BACK[type_], on, now) for type_, on in added)]
        if fields != data and "updated_at" in fields:
            fields["updated_at"] = _time(now)
        return fields

    def new(self, ours: Tracked, taken: Mapping[str, JsonObject], frame: str, now: float) -> tuple[str, JsonObject]:
        """Return an issue for a task that has none: its id has the prefix that the others have."""
        prefixes = Counter(alias.rpartition("-")[0] for alias in taken)
        prefix = prefixes.most_common(1)[0][0] if prefixes else "bd"
        name = f"{prefix or 'bd'}-{frame}"
        fields: JsonObject = {"id": name, "title": ours.goal}
        if ours.description:
            fields["description"] = ours.description
        if ours.acceptance:
            fields["acceptance_criteria"] = ours.acceptance
        kind = ours.kind if ours.kind in {"epic", "story"} else _TYPES[ours.type]
        fields |= {"status": _STATUS[ours.state], "priority": _PRIORITIES.index(ours.priority), "issue_type": kind}
        fields |= {"created_at": _time(now), "updated_at": _time(now)}
        if fields["status"] == "closed":
            fields |= {"closed_at": _time(now), "close_reason": ours.why}
        edges = [(_BACK[type_], on) for type_, on in ours.edges]
        if ours.parent is not None:
            edges.append((_PARENT, ours.parent))
        if edges:
            fields["dependencies"] = [_dependency(name, type_, on, now) for type_, on in edges]
        return name, fields

    def write(self, tasks: Sequence[tuple[str, JsonObject]]) -> str:
        """Return a line for each issue."""
        lines = (json.dumps(data, ensure_ascii=False, separators=(",", ":")) for _, data in tasks)
        return "".join(f"{line.translate(_ESCAPED)}\n" for line in lines)


def _dependencies(data: JsonObject) -> list[tuple[str, str]]:
    found: Any = data.get("dependencies") or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise FileFault(f"{data['id']}: its dependencies are not a list of objects")
    return [(str(one.get("type")), str(one.get("depends_on_id"))) for one in found]


def _dependency(alias: str, type_: str, on: str, now: float) -> JsonObject:
    return {"issue_id": alias, "depends_on_id": on, "type": type_, "created_at": _time(now)}


def _time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
