"""Frames on the page's wire: what it is told of them, what it may do to them, and what is refused."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from rlm_client.client import call_tool
from rlm_ipc.errors import ToolFailed

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"
VERBS = ["plan", "push", "pop", "invalidate", "reopen", "forget", "current"]


def do(page: Any, frame: str, verb: str, **given: Any) -> tuple[int, Any]:
    """Have something done to a frame."""
    told: tuple[int, Any] = page.told("POST", f"/api/frames/{frame}/{verb}", given)
    return told


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder of its own, so a tree of its own; the name of the session that works there."""
    monkeypatch.chdir(tmp_path)
    return f"project-{tmp_path.name[-12:]}"


@pytest.mark.parametrize("verb", VERBS)
def test_without_the_token_no_frame_is_told_or_changed(page: Any, verb: str) -> None:
    """401, as for everything else."""
    assert page.told("GET", "/api/frames/f1", Authorization=None)[0] == 401
    assert page.told("POST", f"/api/frames/f1/{verb}", {}, Authorization=None)[0] == 401


def test_each_verb_does_what_the_tool_does_and_who_watches_is_told(page: Any, project: str) -> None:
    """Plan, push, pop, invalidate, reopen, forget from no session; only the rows that changed are told again."""
    call_tool("eval_code", {"code": "n = 41"}, session=project)
    root = call_tool("frame", {}, session=project)["frame"]
    seen = page.rows("tree", "rows")
    assert root in next(seen)

    def until(condition: Any) -> dict[str, Any]:
        return next(known for known in seen if condition(known))

    goals = [{"goal": "story", "children": [{"goal": "part"}]}, {"goal": "other"}]
    status, done = do(page, root, "plan", goals=goals)
    assert status == 200
    story, other = done["planned"]
    known = until(lambda known: other in known)
    assert (known[story]["parent"], known[story]["status"], known[story]["session"]) == (root, "planned", None)
    assert do(page, root, "plan", goals=[{"goal": "kept?"}, {"goal": " "}])[0] == 409
    assert "kept?" not in {row["goal"] for row in known.values()}

    status, pushed = do(page, story, "push")
    assert (status, pushed["frame"]) == (200, story)
    assert call_tool("eval_code", {"code": "n += 1; n"}, session=pushed["session"])["result"] == "42"
    assert until(lambda known: known[story]["session"])[story]["session"] == pushed["session"]
    shared = do(page, story, "push", goal="here", fork=False)[1]
    assert shared["session"] == pushed["session"] or shared["session"] is not None
    status, said = do(page, story, "pop", summary="It is 42.")
    assert (status, said["error"], said["running"]) == (409, "frames_running", [shared["frame"]])
    given = {"summary": "It is 42.", "artifacts": ["a.md"], "hand_over": ["n"], "children": "fail"}
    assert do(page, story, "pop", **given)[0] == 200
    assert do(page, story, "pop", **given)[0] == 200, "the same pop gets the same answer"
    row = until(lambda known: known[story]["status"] == "completed")[story]
    assert (row["summary"], row["artifacts"]) == ("It is 42.", 1)
    assert call_tool("eval_code", {"code": "n"}, session=project)["result"] == "42"

    status, detail = page.told("GET", f"/api/frames/{story}")
    frame = detail["frame"]
    assert (status, frame["artifacts"], frame["handed_over"]) == (200, ["a.md"], ["n"])
    assert Path(frame["log"]).is_file()
    assert [event["author"] for event in frame["events"]] == ["page"] * len(frame["events"])
    assert detail["may"] == ["reopen", "forget"]

    assert do(page, other, "invalidate")[1]["invalidated"] == [other]
    assert do(page, other, "push")[0] == 409
    assert do(page, other, "reopen")[1]["reopened"] == [other]
    assert do(page, other, "forget")[1]["forgotten"] == [other]
    assert other not in until(lambda known: other not in known)
    assert do(page, other, "forget")[0] == 404


def test_what_is_kept_of_a_frame_can_be_saved(page: Any, project: str) -> None:
    """F-6: log and notebook once it has ended, and its tree at any time; what is not there is refused, with why."""
    pushed = call_tool("push", {"goal": "count"}, session=project)["frame"]
    call_tool("eval_code", {"code": "print(6 * 7)"}, session=pushed)

    def saved(kind: str) -> tuple[int, str, str | None]:
        with page.ask("GET", f"/api/frames/{pushed}/export.{kind}") as answer:
            return answer.status, answer.read().decode(), answer.getheader("Content-Type")

    assert page.told("GET", f"/api/frames/{pushed}")[1]["files"] == []
    for kind, what in [("md", "log"), ("ipynb", "notebook")]:
        status, said, _ = saved(kind)
        assert (status, json.loads(said)["error"]) == (409, "no_log")
        assert f"has no {what}" in said
    do(page, pushed, "pop", summary="It is 42.")
    assert page.told("GET", f"/api/frames/{pushed}")[1]["files"] == ["md", "ipynb"]
    status, log, media = saved("md")
    assert (status, media) == (200, "application/octet-stream")
    assert log == Path(page.told("GET", f"/api/frames/{pushed}")[1]["frame"]["log"]).read_text()
    notebook = nbformat.reads(saved("ipynb")[1], as_version=4)
    nbformat.validate(notebook)
    assert "print(6 * 7)" in [cell.source for cell in notebook.cells]
    tree = json.loads(saved("json")[1])
    assert [(frame["id"], frame["summary"]) for frame in tree["frames"]] == [(pushed, "It is 42.")]
    assert page.told("GET", f"/api/frames/{pushed}/export.exe")[0] == 400
    assert page.told("GET", "/api/frames/f999999/export.json")[0] == 404
    assert page.told("GET", f"/api/frames/{pushed}/export.md", Authorization=None)[0] == 401


def test_a_current_frame_is_moved_for_those_who_have_one(page: Any, project: str) -> None:
    """A client that has none, or has ended in another tree, is left alone."""
    pushed = call_tool("push", {"goal": "first", "fork": False}, session=project)
    later = call_tool("plan", {"goal": "later"}, session=project)["frame"]
    status, done = do(page, later, "current")
    assert (status, done) == (200, {"current": later, "clients": 1})
    assert call_tool("frame", {}, session=project)["current"] == later
    do(page, pushed["frame"], "pop")
    status, said = do(page, pushed["frame"], "current")
    assert (status, said["error"]) == (409, "frame_status")


def test_a_hostile_goal_holds_no_markup_on_the_wire(page: Any, project: str) -> None:
    """Neither in the rows, nor in the whole of one, nor in a refusal."""
    pushed = call_tool("push", {"goal": HOSTILE, "fork": False}, session=project)["frame"]
    for line in page.lines():
        assert not set(line) & set(b"<>&")
        if any(row["goal"] == HOSTILE for row in json.loads(line).get("tree", {"rows": []})["rows"]):
            break
    with page.ask("GET", f"/api/frames/{pushed}") as answer:
        text = answer.read()
    assert not set(text) & set(b"<>&")
    assert json.loads(text)["frame"]["goal"] == HOSTILE


@pytest.mark.parametrize("frame", ["f0", "f999999", "none", "%3Cscript%3E", "f99999999999999999999"])
def test_a_frame_that_is_none_is_said_to_be_missing(page: Any, frame: str) -> None:
    """404 for each verb, and nothing is made."""
    assert page.told("GET", f"/api/frames/{frame}")[0] == 404
    assert do(page, frame, "push")[0] == 404


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("plan", {"goals": []}),
        ("plan", {"goals": [7]}),
        ("plan", {"goals": [{"goal": "x", "children": "text"}]}),
        ("pop", {"status": "planned"}),
        ("pop", {"more": 1}),
        ("push", {"fork": "yes"}),
        ("forget", {"all": True}),
    ],
)
def test_nonsense_about_a_frame_is_refused(page: Any, verb: str, given: dict[str, Any]) -> None:
    """400, and what is wrong."""
    status, said = do(page, "f1", verb, **given)
    assert (status, said["error"]) == (400, "invalid_arguments")


def test_goals_nested_too_deeply_are_refused(page: Any, project: str) -> None:
    """Not a stack that overflows."""
    root = call_tool("frame", {}, session=project)["frame"]
    goal: dict[str, Any] = {"goal": "x"}
    for _ in range(60):
        goal = {"goal": "x", "children": [goal]}
    status, said = do(page, root, "plan", goals=[goal])
    assert (status, said["error"]) == (400, "invalid_arguments")


@pytest.mark.parametrize("road", ["page", "tool"])
def test_the_page_and_the_tool_count_the_levels_of_a_plan_alike(page: Any, project: str, road: str) -> None:
    """Fifty are taken, one more is refused."""
    root = call_tool("frame", {}, session=project)["frame"]

    def plan(levels: int) -> bool:
        goal: dict[str, Any] = {"goal": "x"}
        for _ in range(levels - 1):
            goal = {"goal": "x", "children": [goal]}
        if road == "page":
            return do(page, root, "plan", goals=[goal])[0] == 200
        try:
            call_tool("plan", goal, session=project)
        except ToolFailed:
            return False
        return True

    assert (plan(50), plan(51)) == (True, False)
