"""Tasks of Beads and of task-master in the queue, and back: nothing is lost, and what cannot be is named."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlm_contexts.errors import SourceError
from rlm_ipc.json_size import MOST_VALUES
from rlm_ipc.work_requests import WorkImported
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.work.adding import add
from rlm_mcp.service.work.trackers import export_tasks, import_tasks, read_file
from rlm_memory.frames import ending, rows, tree
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Kind, Status
from rlm_memory.store import Store
from rlm_memory.work import board, holders, items, leases

TREE = "/repo/.git"


def issue(name: str, title: str = "", **more: Any) -> dict[str, Any]:
    """An issue as `bd export` writes it."""
    said = {"id": name, "title": title or f"do {name}", "status": "open", "priority": 2, "issue_type": "task"}
    return {**said, "created_at": "2026-01-26T20:08:27Z", "updated_at": "2026-01-26T20:08:27Z", **more}


def needs(name: str, on: str, type_: str = "blocks") -> dict[str, Any]:
    """A dependency as Beads writes it."""
    return {
        "issue_id": name,
        "depends_on_id": on,
        "type": type_,
        "created_at": "2026-01-26T20:08:27Z",
        "created_by": "x",
    }


ISSUES = [
    issue("bd-a1", "Sign <in> & out", issue_type="epic", labels=["web"], owner="a@example.org"),
    issue("bd-a1.1", "Form", priority=0, design="one column", dependencies=[needs("bd-a1.1", "bd-a1", "parent-child")]),
    issue(
        "bd-a1.2",
        "Page",
        issue_type="bug",
        acceptance_criteria="it posts",
        metadata={"z": 1, "a": [1.5, None]},
        dependencies=[
            needs("bd-a1.2", "bd-a1", "parent-child"),
            needs("bd-a1.2", "bd-a1.1"),
            needs("bd-a1.2", "bd-b", "related"),
            needs("bd-a1.2", "external:other:1", "relates-to"),
        ],
        comments=[
            {"id": 1, "issue_id": "bd-a1.2", "author": "x", "text": "\u2028", "created_at": "2026-01-26T20:08:27Z"}
        ],
    ),
    issue(
        "bd-b",
        "Old",
        status="closed",
        closed_at="2026-01-27T00:00:00Z",
        close_reason="It works.",
        unknown_field={"x": []},
    ),
    issue("bd-c", "On ice", status="deferred", defer_until="2027-01-01T00:00:00Z"),
    issue("bd-d", "Gate", issue_type="gate", await_type="gh:run", dependencies=[needs("bd-d", "bd-b")]),
    issue(
        "bd-e",
        "Undo",
        dependencies=[needs("bd-e", "bd-a1.2", "conditional-blocks"), needs("bd-e", "bd-a1", "waits-for")],
    ),
    issue("bd-f", "Running elsewhere", status="in_progress", assignee="crew/emma"),
]


def beads(*issues: dict[str, Any]) -> str:
    """A file as Go writes it."""
    marks = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028"}
    lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in issues]
    return "".join("".join(marks.get(letter, letter) for letter in line) + "\n" for line in lines)


def task(number: int | str, title: str = "", **more: Any) -> dict[str, Any]:
    """A task as task-master writes it."""
    said: dict[str, Any] = {"id": number, "title": title or f"do {number}", "description": "", "details": ""}
    return {**said, "testStrategy": "", "status": "pending", "dependencies": [], **more}


TAGS: dict[str, Any] = {
    "master": {
        "tasks": [
            task(1, "Init", status="done", priority="high", subtasks=[]),
            task(
                2,
                "Core",
                priority="medium",
                dependencies=[1],
                complexity=7,
                subtasks=[
                    task(1, "a", parentTaskId=2),
                    task(2, "b", dependencies=[1, "1"], acceptanceCriteria="x"),
                    task(3, "c", dependencies=["2.1", 9]),
                    task(3, "c again", isSubtask=True),
                ],
            ),
            task("9", "Later", priority="low", status="review", subtasks=[], previousStatus="done"),
        ],
        "metadata": {"created": "2025-06-13T23:52:56.848Z", "description": "Main — tag"},
    },
    "other": {"metadata": {}, "tasks": [task(1, "Same number", priority="critical", dependencies=[])]},
}


def task_master(document: Any = None) -> str:
    """A file as JavaScript writes it."""
    return json.dumps(TAGS if document is None else document, indent=2, ensure_ascii=False)


FILES = {"beads": beads(*ISSUES), "task-master": task_master()}


def take(store: Store, text: str, source: str = "beads", **more: Any) -> WorkImported:
    return import_tasks(store, TREE, source, text, now=1000.0, **more)


def frame(store: Store, alias: str, source: str = "beads") -> FrameRow:
    """Find the frame that has a name there."""
    return rows.get(store, keys(store, source)[alias])


def keys(store: Store, source: str) -> dict[str, int]:
    """Map the names that a tracker has to the keys of their frames."""
    return {alias.alias: frame for frame, alias in items.aliases(store, TREE, source)}


def state(store: Store, alias: str, source: str = "beads") -> str:
    """Where a task stands on the board."""
    return board.read(store, now=1000.0).cards[frame(store, alias, source).id].state


@pytest.mark.parametrize("source", FILES)
def test_what_was_imported_is_exported_byte_by_byte(store: Store, source: str) -> None:
    """Unknown fields, comments, the order of lines and keys, metadata of tags: all of it comes out as it was."""
    done = take(store, FILES[source], source)
    assert (done.changed, done.same, done.kept) == (0, 0, ())
    assert export_tasks(store, TREE, source, now=2000.0) == FILES[source]


@pytest.mark.parametrize("source", FILES)
def test_the_same_file_again_changes_nothing(store: Store, source: str) -> None:
    """Nor does it write an event."""
    done = take(store, FILES[source], source)
    before = board.newest(store)
    assert take(store, FILES[source], source) == WorkImported(0, 0, done.added, ())
    assert board.newest(store) == before


def test_issues_of_beads_are_tasks_that_can_be_worked_on(store: Store) -> None:
    """Kinds, priorities, texts, what waits for what; whoever works on one in Beads has no lease here."""
    assert take(store, beads(*ISSUES)).added == len(ISSUES)
    epic, form, page = (frame(store, name) for name in ("bd-a1", "bd-a1.1", "bd-a1.2"))
    assert (epic.kind, form.parent, form.priority, form.kind) == (Kind.EPIC, epic.key, 1000, Kind.TASK)
    assert items.get(store, form.key).description == "one column"
    assert items.get(store, page.key) == items.Item("bug", "", "it posts")
    states = {name: state(store, name) for name in ("bd-a1.1", "bd-a1.2", "bd-b", "bd-c", "bd-e", "bd-f")}
    assert states == {
        "bd-a1.1": "ready",
        "bd-a1.2": "waiting",
        "bd-b": "completed",
        "bd-c": "blocked",
        "bd-e": "waiting",
        "bd-f": "ready",
    }
    assert frame(store, "bd-d").kind is Kind.STORY, "nobody can work on a gate"
    kept = rows.compaction_of(store, frame(store, "bd-b").key)
    assert kept is not None
    assert kept.text == "It works."


def test_tasks_of_task_master_are_told_apart_by_their_tags(store: Store) -> None:
    """A subtask's dependency without a dot is a sibling if there is one, else a task."""
    take(store, task_master(), "task-master")

    def waits(alias: str) -> list[str]:
        names = {key: other for other, key in keys(store, "task-master").items()}
        card = board.read(store, now=1000.0).cards[frame(store, alias, "task-master").id]
        return [str(names[rows.frame_key(link.on)]) for link in card.links]

    assert frame(store, "master:", "task-master").kind is Kind.STORY
    assert frame(store, "master:2.1", "task-master").parent == frame(store, "master:2", "task-master").key
    assert waits("master:2") == ["master:1"]
    assert waits("master:2.2") == ["master:2.1"]
    assert sorted(waits("master:2.3")) == ["master:2.1", "master:9"]
    assert frame(store, "other:1", "task-master").priority == 1000
    assert state(store, "master:9", "task-master") == "blocked", "a review is nobody's to claim"
    assert frame(store, "master:2.3#2", "task-master").goal == "c again", "the number is there twice: both are kept"


def test_a_file_of_before_there_were_tags_is_read(store: Store) -> None:
    """Its names have no tag."""
    text = task_master({"tasks": [task(1), task(2, dependencies=[1])], "meta": {"projectName": "x"}})
    take(store, text, "task-master")
    assert state(store, "2", "task-master") == "waiting"
    assert export_tasks(store, TREE, "task-master", now=2000.0) == text


def test_what_changed_here_is_changed_in_the_file_and_nothing_else(store: Store) -> None:
    """Status, priority, texts, new edges; with the time of the change, and every other field as it was."""
    take(store, beads(*ISSUES))
    root = rows.root_of(store, TREE)
    assert root is not None
    form, late = frame(store, "bd-a1.1"), frame(store, "bd-f")
    tree.start(store, form.key, author="x", now=1.0)
    ending.pop(store, form.key, Outcome(Status.COMPLETED, "It posts."), author="x", now=1.0)
    add(store, root, late.id, {"priority": 750, "description": "soon", "found_in": [form.id]}, "", now=1.0)
    lines = [json.loads(line) for line in export_tasks(store, TREE, "beads", now=0.0).splitlines()]
    time = "1970-01-01T00:00:00Z"
    changed: dict[str, dict[str, Any]] = {
        "bd-a1.1": {"status": "closed", "closed_at": time, "close_reason": "It posts.", "updated_at": time},
        "bd-f": {
            "priority": 1,
            "description": "soon",
            "updated_at": time,
            "dependencies": [
                {"issue_id": "bd-f", "depends_on_id": "bd-a1.1", "type": "discovered-from", "created_at": time}
            ],
        },
    }
    assert lines == [one | changed.get(one["id"], {}) for one in ISSUES]


@pytest.mark.parametrize("source", FILES)
def test_what_was_added_here_gets_a_name_there_and_keeps_it(store: Store, source: str) -> None:
    """The tracker reads it as its own; our own next import knows it again."""
    take(store, FILES[source], source)
    root = rows.root_of(store, TREE)
    assert root is not None
    above = frame(store, "bd-a1" if source == "beads" else "master:2", source)
    first = add(store, root, None, {"goal": "new", "parent": above.id, "priority": 250}, "", now=1.0)["added"]
    add(store, root, None, {"goal": "newer", "blocks": [first]}, "", now=1.0)
    text = export_tasks(store, TREE, source, now=0.0)
    assert export_tasks(store, TREE, source, now=9.0) == text
    assert take(store, text, source).added == 0
    if source == "beads":
        newer, new = (json.loads(line) for line in text.splitlines()[-2:])
        assert (new["id"], new["priority"], newer["dependencies"][0]["depends_on_id"]) == (f"bd-{first}", 3, new["id"])
        assert [(one["type"], one["depends_on_id"]) for one in new["dependencies"]] == [("parent-child", "bd-a1")]
    else:
        tasks = json.loads(text)["master"]["tasks"]
        assert (tasks[1]["subtasks"][-1]["title"], tasks[1]["subtasks"][-1]["id"]) == ("new", 4)
        assert (tasks[-1]["id"], tasks[-1]["dependencies"]) == (10, ["2.4"])


def test_a_queue_that_was_never_imported_is_exported(store: Store) -> None:
    """To begin with a tracker; a file of task-master has the first tag."""
    root = tree.root(store, TREE, author="x", now=1.0)
    assert root is not None
    add(store, root, None, {"goal": "first", "type": "test"}, "", now=1.0)
    said = json.loads(export_tasks(store, TREE, "beads", now=0.0))
    assert (said["id"][:4], said["title"], said["status"], said["issue_type"]) == ("bd-f", "first", "open", "task")
    (made,) = json.loads(export_tasks(store, TREE, "task-master", now=0.0))["master"]["tasks"]
    assert (made["id"], made["title"], made["status"]) == (1, "first", "pending")


def test_a_new_task_has_its_texts_there(store: Store) -> None:
    """And no empty ones: what nobody has said is left out."""
    root = tree.root(store, TREE, author="x", now=1.0)
    assert root is not None
    for name, texts in (("told", {"description": "why", "acceptance": "it posts"}), ("bare", {})):
        add(store, root, None, {"goal": name, **texts}, "", now=1.0)
    lines = map(json.loads, export_tasks(store, TREE, "beads", now=0.0).splitlines())
    said = {line["title"]: (line.get("description"), line.get("acceptance_criteria")) for line in lines}
    assert said == {"told": ("why", "it posts"), "bare": (None, None)}


def test_a_new_task_goes_to_a_tag_that_the_file_has(store: Store) -> None:
    """To the first one, though it is empty, in a file without a tag named master."""
    take(store, task_master({"later": {"tasks": []}, "other": TAGS["other"]}), "task-master")
    root = rows.root_of(store, TREE)
    assert root is not None
    add(store, root, None, {"goal": "new"}, "", now=1.0)
    said = json.loads(export_tasks(store, TREE, "task-master", now=0.0))
    assert {tag: [one["title"] for one in told["tasks"]] for tag, told in said.items()} == {
        "later": ["new"],
        "other": ["Same number"],
    }


def test_an_issue_without_texts_keeps_its_type(store: Store) -> None:
    """Most bugs have a title only."""
    take(store, beads(issue("bd-1", issue_type="bug"), issue("bd-2", issue_type="chore")))
    types = [items.get(store, frame(store, name).key).type for name in ("bd-1", "bd-2")]
    assert types == ["bug", "chore"]


def test_a_changed_file_changes_the_tasks(store: Store) -> None:
    """Title, priority, texts, status both ways, edges; what is new is added, and what is gone is named and stays."""
    take(store, beads(*ISSUES))
    page = issue("bd-a1.2", "Page, too", priority=1, issue_type="bug", dependencies=[needs("bd-a1.2", "bd-f")])
    again = [*ISSUES[:1], ISSUES[1] | {"status": "closed"}, page, ISSUES[3] | {"status": "open"}, *ISSUES[4:-1]]
    again += [ISSUES[-1] | {"description": "new"}, issue("bd-g")]
    done = take(store, beads(*again[:4], *again[5:]))
    assert (done.added, done.changed) == (1, 4)
    assert f"no longer in the file: bd-c ({frame(store, 'bd-c').id})" in done.kept
    assert (frame(store, "bd-a1.2").goal, frame(store, "bd-a1.2").priority) == ("Page, too", 750)
    assert (state(store, "bd-a1.1"), state(store, "bd-b")) == ("completed", "ready")
    assert items.get(store, frame(store, "bd-f").key).description == "new"
    waits = board.read(store, now=1.0).cards[frame(store, "bd-a1.2").id].links
    assert [(link.on, link.waits) for link in waits] == [(frame(store, "bd-f").id, True)]


def test_what_changed_there_and_here_stays_as_it_is_here_and_is_named(store: Store) -> None:
    """Nobody's word is lost silently; the next export says ours."""
    take(store, beads(*ISSUES))
    late, form = frame(store, "bd-f"), frame(store, "bd-a1.1")
    items.set_priority(store, late.key, 1000, author="x", now=1.0)
    holder = holders.enlist(store, "process", "p", label="agent", worktree="", now=1.0)
    assert leases.claim(store, holder, TREE, now=1.0, key=form.key)
    again = [*ISSUES[:1], ISSUES[1] | {"status": "closed"}, *ISSUES[2:-1], ISSUES[-1] | {"priority": 4}]
    done = take(store, beads(*again))
    assert set(done.kept) == {
        f"bd-f ({late.id}): priority has changed in the file and here; the version here is kept",
        f"bd-a1.1 ({form.id}): it is completed in the file, and someone works on it here; pop it",
    }
    assert (frame(store, "bd-f").priority, frame(store, "bd-a1.1").holder) == (1000, holder.id)
    assert '"id":"bd-f","title":"Running elsewhere","status":"in_progress","priority":0' in export_tasks(
        store, TREE, "beads", now=0.0
    )
    assert take(store, beads(*again)).kept == ()


REFUSED = {
    "a circle": (
        "beads",
        beads(issue("bd-1", dependencies=[needs("bd-1", "bd-2")]), issue("bd-2", dependencies=[needs("bd-2", "bd-1")])),
        "bd-1.*bd-2",
    ),
    "a circle through the tree": (
        "task-master",
        task_master({"master": {"tasks": [task(1, subtasks=[task(1, dependencies=[2])]), task(2, dependencies=[1])]}}),
        "master:1.*master:2",
    ),
    "below each other": (
        "beads",
        beads(
            issue("bd-1", dependencies=[needs("bd-1", "bd-2", "parent-child")]),
            issue("bd-2", dependencies=[needs("bd-2", "bd-1", "parent-child")]),
        ),
        "bd-1 > bd-2 > bd-1",
    ),
    "a task that is missing": ("beads", beads(issue("bd-1", dependencies=[needs("bd-1", "bd-9")])), "bd-1 names bd-9"),
    "a parent that is missing": (
        "beads",
        beads(issue("bd-1", dependencies=[needs("bd-1", "bd-9", "parent-child")])),
        "bd-1 names bd-9",
    ),
    "a task twice": ("beads", beads(issue("bd-1"), issue("bd-1")), "bd-1 twice"),
    "no JSON": ("beads", beads(issue("bd-1")) + "{", "line 2 is not JSON"),
    "no id": ("beads", '{"title":"x"}', "line 1 is not an issue"),
    "no title": ("beads", '{"id":"bd-1"}', "bd-1 .line 1. has no title"),
    "a list": ("task-master", "[]", "not an object"),
    "no tasks": ("task-master", '{"master":{}}', "'master' has no list"),
    "a task without an id": (
        "task-master",
        '{"master":{"tasks":[{"title":"x"}]}}',
        "'master' has a task without an id",
    ),
    "a subtask that is none": (
        "task-master",
        '{"master":{"tasks":[{"id":1,"title":"x","subtasks":[1]}]}}',
        "master:1 has a",
    ),
    "a tracker that is none": ("jira", "", "'jira' is not a tracker"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_file_that_cannot_be_is_named_and_nothing_of_it_is_taken(store: Store, why: str) -> None:
    """One transaction: the tasks that were good are not there either."""
    source, text, said = REFUSED[why]
    with pytest.raises(ToolFault, match=said):
        take(store, text, source)
    assert board.read(store, now=1.0).cards == {}
    assert rows.root_of(store, TREE) is None


def test_edges_to_what_the_file_lacks_can_be_kept_for_the_export(store: Store) -> None:
    """Files in use have some: the task is taken without the edge, which comes out again."""
    text = beads(issue("bd-1", dependencies=[needs("bd-1", "bd-9"), needs("bd-1", "bd-8", "parent-child")]))
    take(store, text, skip_missing=True)
    assert state(store, "bd-1") == "ready"
    assert export_tasks(store, TREE, "beads", now=2000.0) == text


def test_what_is_open_below_what_is_closed_can_be_worked_on(store: Store) -> None:
    """Beads lets an epic be closed before its issues: here it would keep them from everybody."""
    text = beads(
        issue("bd-1", issue_type="epic", status="closed"),
        issue("bd-2", dependencies=[needs("bd-2", "bd-1", "parent-child")]),
    )
    take(store, text)
    assert (state(store, "bd-1"), state(store, "bd-2")) == ("completed", "ready")
    assert export_tasks(store, TREE, "beads", now=2000.0) == text


def test_a_file_that_would_fill_the_daemon_is_not_read(tmp_path: Path) -> None:
    """It may come from anybody: no device, nothing that never ends, and no more than is looked at as objects."""
    file = tmp_path / "issues.jsonl"
    file.write_text(json.dumps(issue("bd-1")))
    assert json.loads(read_file(file))["id"] == "bd-1"
    os.mkfifo(tmp_path / "pipe")
    for endless in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(SourceError, match=r"not a regular file|is a directory"):
            read_file(endless)
    file.write_text("[" + "[]," * MOST_VALUES + "1]")
    with pytest.raises(ValueError, match="values"):
        read_file(file)


def test_a_long_file_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    """Of issues that are cut off somewhere the first ones would be imported, as if there were no others."""
    file = tmp_path / "issues.jsonl"
    file.write_bytes(b"\n" * (64 << 20))
    assert len(read_file(file)) == 64 << 20
    with file.open("ab") as longer:
        longer.write(b"\n")
    with pytest.raises(ValueError, match="more than 67,108,864 bytes"):
        read_file(file)
