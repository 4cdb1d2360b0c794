"""task-master: one JSON file with tasks and subtasks by tag. A tag is a story here, and its tasks are below that.

Names are ``TAG:3`` for a task and ``TAG:3.1`` for a subtask, because task-master counts anew in each tag; a file of
before there were tags has ``3`` and ``3.1``. The data of a tag keep an empty list where its tasks stood, and those of a
task one where its subtasks stood: so the file comes out in the order in which it was.
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
    "done": "completed",
    "completed": "completed",
    "blocked": "blocked",
    "deferred": "blocked",
    "review": "blocked",
    "cancelled": "invalidated",
}
_STATUS: Mapping[State, str] = {
    OPEN: "pending", "completed": "done", "blocked": "blocked", "invalidated": "cancelled",
}  # fmt: skip
_PRIORITIES = {"critical": 1000, "high": 750, "medium": 500, "low": 250}
_BACK = {ours: theirs for theirs, ours in _PRIORITIES.items()}
_USUAL = 500
_FIRST_TAG = "master"
_NO_TAG = ""


class TaskMaster:
    """The format of ``.taskmaster/tasks/tasks.json``."""

    def read(self, text: str) -> list[Tracked]:
        """Return tags, tasks and subtasks, each behind what it is a part of."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FileFault(f"it is not JSON ({error})") from error
        if not isinstance(document, dict):
            raise FileFault("it is not an object with tags")
        tags = {_NO_TAG: document} if isinstance(document.get("tasks"), list) else document
        found: list[Tracked] = []
        names: Counter[str] = Counter()
        for tag, content in tags.items():
            if not isinstance(content, dict) or not isinstance(content.get("tasks"), list):
                raise FileFault(f"the tag {tag!r} has no list of tasks")
            found.append(self.again({**content, "tasks": []}, _of_tag(tag)))
            for task in content["tasks"]:
                name = _once(names, _name(tag, task))
                subtasks = task.get("subtasks") or []
                if not isinstance(subtasks, list):
                    raise FileFault(f"{name}: its subtasks are not a list")
                found.append(self.again({**task, **({"subtasks": []} if "subtasks" in task else {})}, name))
                siblings = {str(one.get("id")) for one in subtasks if isinstance(one, dict)}
                found += [self._subtask(one, _once(names, _name(tag, one, name)), siblings) for one in subtasks]
        return found

    def _subtask(self, data: Any, alias: str, siblings: set[str]) -> Tracked:
        """A subtask whose dependencies without a dot are those of its siblings that there are, else of tasks."""
        outside = [str(on) for on in data.get("dependencies") or [] if "." not in str(on) and str(on) not in siblings]
        return self.again({"_outside": outside, **data} if outside else data, alias)

    def again(self, data: JsonObject, alias: str) -> Tracked:
        """Return the task that the data of a tag, a task or a subtask stand for."""
        tag, number = _parts(alias)
        if not number:
            return Tracked(alias, f"task-master: {tag or 'tasks.json'}", kind="story", data=data)
        outside = set(data.get("_outside", []))
        own, dot, _ = number.partition(".")
        edges = []
        for on in data.get("dependencies") or []:
            named = str(on)
            inside = dot and "." not in named and named not in outside
            edges.append(("blocks", _join(tag, f"{own}.{named}" if inside else named)))
        state = _STATES.get(str(data.get("status", "pending")), OPEN)
        acceptance = data.get("testStrategy") or data.get("acceptanceCriteria") or ""
        return Tracked(
            alias=alias,
            goal=str(data["title"]).strip(),
            priority=_PRIORITIES.get(str(data.get("priority")), _USUAL),
            state=state,
            why="" if state == OPEN else str(data.get("status")),
            description=joined(data, "description", "details"),
            acceptance=acceptance if isinstance(acceptance, str) else "\n".join(map(str, acceptance)),
            parent=_join(tag, own) if dot else _of_tag(tag),
            edges=tuple(dict.fromkeys(edges)),
            data=data,
        )

    def changed(self, data: JsonObject, ours: Tracked, base: Tracked, now: float) -> JsonObject:
        """Return the data with what has changed here."""
        tag, number = _parts(ours.alias)
        if not number:
            return data
        fields = dict(data)
        if ours.goal != base.goal:
            fields["title"] = ours.goal
        if ours.description != base.description:
            fields |= {"description": ours.description, "details": ""}
        if ours.acceptance != base.acceptance:
            fields["testStrategy"] = ours.acceptance
        if ours.priority != base.priority:
            fields["priority"] = _BACK[ours.priority]
        if ours.state != base.state:
            fields["status"] = _STATUS[ours.state]
        added = [on for _, on in ours.edges if on not in {known for _, known in base.edges}]
        gone = {on for _, on in base.edges if on not in {known for _, known in ours.edges}}
        if added or gone:
            pairs = zip(base.edges, dict.fromkeys(map(str, data.get("dependencies") or [])), strict=False)
            kept = [on for (_, known), on in pairs if known not in gone]
            values = {str(value): value for value in data.get("dependencies") or []}
            fields["dependencies"] = [*(values[on] for on in kept), *(_reference(tag, on) for on in added)]
        if fields != data and "updatedAt" in fields:
            fields["updatedAt"] = _time(now)
        return fields

    def new(self, ours: Tracked, taken: Mapping[str, JsonObject], frame: str, now: float) -> tuple[str, JsonObject]:
        """Return a subtask for a task below a task, else a task of the tag that it is below, else of the first one."""
        tag, above = _parts(ours.parent) if ours.parent is not None and ours.parent in taken else (_any_tag(taken), "")
        below = above.partition(".")[0]
        used = [_parts(name)[1] for name in taken if _parts(name)[0] == tag]
        if below:
            numbers = [
                int(last) for one in used if one.startswith(f"{below}.") and (last := one.partition(".")[2]).isdecimal()
            ]
        else:
            numbers = [int(one) for one in used if one.isdecimal()]
        number = max(numbers, default=0) + 1
        name = _join(tag, f"{below}.{number}" if below else str(number))
        fields: JsonObject = {"id": number, "title": ours.goal, "description": ours.description, "details": ""}
        fields |= {"testStrategy": ours.acceptance, "status": _STATUS[ours.state]}
        fields["dependencies"] = [_reference(tag, on) for type_, on in ours.edges if type_ == "blocks"]
        if not below or ours.priority != _USUAL:
            fields["priority"] = _BACK[ours.priority]
        return name, fields if below else fields | {"subtasks": []}

    def write(self, tasks: Sequence[tuple[str, JsonObject]]) -> str:
        """Return the file: as JavaScript writes it, indented by two."""
        document: JsonObject = {}
        named: JsonObject = {}
        for alias, data in sorted(tasks, key=lambda one: _depth(one[0])):
            tag, number = _parts(alias)
            own, dot, _ = number.partition(".")
            fields = {name: value for name, value in data.items() if name != "_outside"}
            if not number:
                document[tag] = fields | {"tasks": []}
            elif dot:
                above = named[_join(tag, own)]
                above["subtasks"] = [*above.get("subtasks", []), fields]
            else:
                named[alias] = fields
                document.setdefault(tag, {"tasks": []})["tasks"].append(fields)
        return json.dumps(document.get(_NO_TAG, document), indent=2, ensure_ascii=False)


def _of_tag(tag: str) -> str:
    return f"{tag}:"


def _join(tag: str, number: str) -> str:
    return f"{tag}:{number}" if tag else number


def _parts(alias: str) -> tuple[str, str]:
    """Return the tag and the number; of a tag itself the number is empty."""
    tag, colon, number = alias.rpartition(":")
    return (tag, number) if colon else (_NO_TAG, alias)


def _depth(alias: str) -> int:
    number = _parts(alias)[1]
    return 0 if not number else 1 + number.count(".")


def _any_tag(taken: Mapping[str, JsonObject]) -> str:
    tags = [_parts(name)[0] for name in taken if not _parts(name)[1]]
    return _FIRST_TAG if _FIRST_TAG in tags or not tags else tags[0]


def _reference(tag: str, alias: str) -> int | str:
    number = alias.removeprefix(f"{tag}:")
    return int(number) if number.isdecimal() else number


def _name(tag: str, task: Any, below: str = "") -> str:
    where = below or f"the tag {tag!r}"
    if not isinstance(task, dict) or type(task.get("id")) not in (int, str) or task["id"] == "":
        raise FileFault(f"{where} has a task without an id")
    if not isinstance(task.get("title"), str) or not task["title"].strip():
        raise FileFault(f"{where} has a task {task['id']} without a title")
    if not isinstance(task.get("dependencies") or [], list):
        raise FileFault(f"{where}: the dependencies of {task['id']} are not a list")
    number = str(task["id"])
    return f"{below}.{number.rpartition('.')[2]}" if below else _join(tag, number)


def _once(names: Counter[str], name: str) -> str:
    """Return a name that nothing has yet: files in use have a number twice, and only the first is meant by it."""
    names[name] += 1
    return name if names[name] == 1 else f"{name}#{names[name]}"


def _time(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
