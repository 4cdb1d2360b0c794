"""A plan of three levels over real files, with parallel pushes, a failure, an invalidation, and processes that die.

After every step, also after a daemon or a supervisor was killed, all that can be seen is compared with what was done.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import nbformat
import pytest
import yaml
from serving import kill_daemon, the_supervisor
from session_processes import kill_with_keeper

from rlm_client.client import Client

pytestmark = pytest.mark.usefixtures("ended")

SECONDS = 30.0


@dataclass
class Goal:
    """What has been done of one goal; ``cells`` are pairs of code and what its output has."""

    id: str
    text: str
    parent: str | None = None
    status: str = "planned"
    summary: str = ""
    handed_over: tuple[str, ...] = ()
    cells: list[tuple[str, str]] = field(default_factory=list)


class Done:
    """What has been done of a whole plan, and all that can be seen of it: the tree, contexts, logs, notebooks."""

    def __init__(self, client: Client, *goals: Goal) -> None:
        self.goals = {goal.id: goal for goal in goals}
        self.ended: list[Goal] = []
        self.client = client

    def push(self, name: str, *with_it: str) -> Any:
        """Start a goal, and with it those planned ones above it."""
        answer = self.client.call("push", goal=name)
        for started in (*with_it, name):
            self.goals[started].status = "in_progress"
        self.check()
        return answer

    def run(self, name: str, code: str, output: str) -> Any:
        answer = self.client.call("eval_code", session=name, code=code)
        self.goals[name].cells.append((code, output))
        self.check()
        return answer

    def pop(self, name: str, status: str, summary: str = "", *hand_over: str) -> Any:
        answer = self.client.call("pop", id=name, status=status, summary=summary, hand_over=hand_over)
        goal = self.goals[name]
        goal.status, goal.summary, goal.handed_over = status, summary or answer["summary"], hand_over
        self.ended.append(goal)
        self.check()
        return answer

    def invalidate(self, name: str) -> None:
        assert self.client.call("frame", id=name, do="invalidate")["invalidated"] == [name]
        self.goals[name].status = "invalidated"
        self.check()

    def check(self, client: Client | None = None) -> None:
        """Compare what a client sees with what has been done; the one given is that of the next steps."""
        self.client = client or self.client
        call = self.client.call
        assert call("frame")["tree"] == list(self._lines(self.goals["f1"], 0))
        for goal in self.goals.values():
            shown = call("frame", session=goal.id)  # so no other frame becomes the current one
            assert (shown["frame"], shown["status"], shown["goal"]) == (goal.id, goal.status, goal.text)
            if goal in self.ended:
                assert shown["summary"] == goal.summary
                self._check_log(goal, Path(shown["log"]))
                self._check_notebook(goal, Path(shown["log"]).with_suffix(".ipynb"))
            else:
                assert shown["log"] is None
                (top,) = ET.fromstring(shown["context"])
                assert _seen(top) == self._context(self.goals["f1"], self._way(goal))

    def _children(self, goal: Goal) -> list[Goal]:
        return [child for child in self.goals.values() if child.parent == goal.id]

    def _lines(self, goal: Goal, depth: int) -> Iterator[str]:
        yield f"{'  ' * depth}{goal.id} {goal.status} {goal.text}"
        for child in self._children(goal):
            yield from self._lines(child, depth + 1)

    def _way(self, goal: Goal) -> list[str]:
        return [*(self._way(self.goals[goal.parent]) if goal.parent else ()), goal.id]

    def _context(self, goal: Goal, way: Sequence[str]) -> Seen:
        """Ended children in the order of their end, the way down, and behind it what runs and what is planned."""
        children = self._children(goal)
        ended = [Seen(child.id, child.status, child.summary) for child in self.ended if child in children]
        down = [self._context(child, way) for child in children if child.id in way]
        still = [
            Seen(child.id, status, child.text)
            for status in ("in_progress", "planned")
            for child in children
            if child.status == status and child.id not in way
        ]
        return Seen(goal.id, goal.status, goal.text, (*ended, *down, *still))

    def _check_log(self, goal: Goal, log: Path) -> None:
        text = log.read_text()
        _, front, body = text.split("---\n", 2)
        told = yaml.safe_load(front)
        known = {"frame": goal.id, "goal": goal.text, "status": goal.status, "parent": goal.parent}
        assert {name: told[name] for name in known} == known
        assert told["handed_over"] == list(goal.handed_over)
        assert told["started_at"] < told["ended_at"]
        assert (told["session"] is None) == (not goal.cells)
        assert (told["cells"], told["tool_calls"]) == (len(goal.cells), len(goal.cells))
        assert goal.summary.splitlines()[0] in body
        cells = body.partition("\n## ")[2]
        assert re.findall(r"```python\n(.*?)\n```", cells, re.DOTALL) == [code for code, _ in goal.cells]
        for said, (_, output) in zip(re.findall(r"```text\n(.*?)\n```", cells, re.DOTALL), goal.cells, strict=True):
            assert output in said

    def _check_notebook(self, goal: Goal, file: Path) -> None:
        """It is executed, and has the cells of this goal and no others; what ran no cells of its own has none."""
        if not goal.cells:
            assert not file.exists()
            return
        notebook = nbformat.read(file, as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.source for cell in cells] == [code for code, _ in goal.cells]
        assert all(isinstance(cell.execution_count, int) for cell in cells)
        for cell, (_, output) in zip(cells, goal.cells, strict=True):
            assert output in str(cell.outputs)


@dataclass(frozen=True)
class Seen:
    """A frame in a context, with what is said of it: its summary if it has ended, else its goal."""

    id: str
    status: str
    text: str
    within: tuple[Seen, ...] = ()


def _seen(element: ET.Element) -> Seen:
    said = element.findtext("summary") or element.findtext("goal") or ""
    within = tuple(_seen(part) for part in element if part.tag not in {"goal", "summary", "log"})
    return Seen(element.get("id", ""), element.get("status", ""), said, within)


def test_a_plan_is_worked_through_while_processes_die(isolation: Any, tmp_path: Path) -> None:
    """F-11, F-5, F-6, F-8: after every step what was done is there, and nothing that was not.

    That is: the tree, the log and the notebook of each goal that has ended, and the context of each that has not.
    """
    for number in range(3):
        (tmp_path / f"part{number}.py").write_text(f"def f{number}():\n    return {number}\n" * 50)
    lost = "try:\n    seen\nexcept NameError:\n    print('lost', code['line_count'])"
    with Client("root") as client:
        client.call("load_context", name="code", path=str(tmp_path))
        client.call("eval_code", code="seen = []")  # a cell of the session's, and so of no goal
        parts: list[Any] = [{"goal": "part one", "children": ["read it", "write it up"]}, "part two", "part three"]
        client.call("plan", goal="review the code", children=parts)
        done = Done(
            client,
            Goal("f1", client.call("frame", id="f1")["goal"], status="in_progress"),
            Goal("f2", "review the code", "f1"),
            Goal("f3", "part one", "f2"),
            Goal("f4", "read it", "f3"),
            Goal("f5", "write it up", "f3"),
            Goal("f6", "part two", "f2"),
            Goal("f7", "part three", "f2"),
        )
        done.check()
        one, two = done.push("f4", "f2", "f3"), done.push("f6")
        assert (one["breadcrumb"], two["breadcrumb"]) == ("f1 > f2 > f3 > f4", "f1 > f2 > f6")
        done.run("f4", "count = code['content'].count('def '); print('FACT', count)", "FACT 150")
        done.run("f6", "1 / 0", "ZeroDivisionError")

    kill_daemon()
    with Client("root") as client:
        done.check(client)
        assert client.call("frame", id="f4")["session"] == one["session"]
        assert done.run("f4", "count", "150")["result"] == "150"  # kernels outlive the daemon
        first = done.pop("f4", "completed", "There are 150 functions.", "count")
        failed = done.pop("f6", "failed")
        assert (failed["source"], "ZeroDivisionError" in failed["summary"]) == ("extract", True)
        done.invalidate("f7")
        done.push("f5")

    kill_daemon()
    kill_with_keeper(the_supervisor())  # with the kernel that had the value
    with Client("root") as client:
        done.check(client)
        again = client.call("pop", id="f4", summary="There are 150 functions.", hand_over=["count"])
        assert again["log"] == first["log"]
        values = client.call("eval_code", session="root", code="count, sorted(frames)")
        assert values["result"] == "(150, ['f4', 'f6'])"
        done.run("f5", lost, "lost 30")  # its kernel is gone, the text is there
        done.pop("f5", "completed", "Written up.")
        done.pop("f3", "completed", "Part one is done.")
        assert done.pop("f2", "completed", "All is reviewed.")["current"] == "f1"
    with closing(sqlite3.connect(isolation.state / "rlm.sqlite3")) as rows:
        assert rows.execute("SELECT count(*) FROM frame_operations").fetchone() == (0,)
        assert [name for (name,) in rows.execute("SELECT id FROM sessions")] == ["root"]


@pytest.mark.parametrize("what", ["log", "push"])
def test_the_next_daemon_does_what_was_promised(isolation: Any, what: str) -> None:
    """F-11: a log that was still to be written is, and a push whose kernel never came is a plan again."""
    with Client("root") as client:
        pushed = client.call("push", goal="task")
        client.call("eval_code", session="f2", code="print('KEPT')")
        if what == "log":
            log = Path(client.call("pop", id="f2", summary="done")["log"])
            log.unlink()
        assert pushed["frame"] == "f2"
    kill_daemon()
    with closing(sqlite3.connect(isolation.state / "rlm.sqlite3")) as rows:  # as far as it came
        session = rows.execute("SELECT session FROM frames WHERE key = 2").fetchone()[0]
        rows.execute("INSERT INTO frame_operations (frame, what, of_session) VALUES (2, ?, ?)", (what, session))
        rows.commit()
    with Client("root") as client:
        shown = client.call("frame", id="f2")
        assert shown["status"] == ("completed" if what == "log" else "planned")
        if what == "log":
            assert "goal: task" in Path(shown["log"]).read_text()


def test_a_forgotten_frame_leaves_no_trace(isolation: Any) -> None:
    """P4: what its session held goes with the session, what its pop has kept with the frame."""
    mark = f"MARK{os.urandom(8).hex()}"
    with Client("root") as client:
        client.call("push", goal=f"goal {mark}")
        client.call("eval_code", session="f2", code=f"x = {mark!r}; print(x)")
        client.call("frame", note=f"note {mark}", session="f2")
        client.call("pop", id="f2", summary=f"summary {mark}", hand_over=["x"], decisions=[mark])
        assert any(mark.encode() in path.read_bytes() for path in isolation.state.rglob("*") if path.is_file())
        client.call("frame", id="f2", do="forget")
        client.call("end_session")
    left = [path for path in isolation.state.rglob("*") if path.is_file() and mark.encode() in path.read_bytes()]
    assert left == []
