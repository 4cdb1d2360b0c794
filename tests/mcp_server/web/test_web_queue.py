"""The queue on the page's wire: what it is told of tasks, what a person may do to them, and what is refused."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_client import Client

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>&lt;"
VERBS = ["claim", "release", "priority"]


def do(page: Any, task: str, verb: str, **given: Any) -> tuple[int, Any]:
    """Have something done to a task."""
    told: tuple[int, Any] = page.told("POST", f"/api/work/{task}/{verb}", given)
    return told


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Client]:
    """An agent in a repository, and so a queue, of its own."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)
    with Client() as agent:
        yield agent


def add(agent: Client, goal: str, **data: Any) -> str:
    return str(agent.work("add", data={"goal": goal, **data})["added"])


@pytest.mark.parametrize("verb", VERBS)
def test_without_the_token_no_task_is_told_or_changed(page: Any, verb: str) -> None:
    """401, as for everything else."""
    assert page.told("POST", f"/api/work/f1/{verb}", {}, Authorization=None)[0] == 401
    assert page.told("GET", "/api/live?work=1", Authorization=None)[0] == 401


def test_a_person_does_what_an_agent_does_and_who_watches_is_told(page: Any, agent: Client) -> None:
    """Claim for a time, release, steal with a reason, another priority; a fence goes up with each claim."""
    task, later = add(agent, "task"), add(agent, "later")
    seen = page.rows("work", "cards", "?work=1")

    def until(condition: Any) -> dict[str, Any]:
        return next(known for known in seen if condition(known))

    assert until(lambda known: later in known)[task]["state"] == "ready"
    assert do(page, task, "claim", seconds=60) == (200, {"claimed": task, "fence": 1, "attempt": 1})
    card = until(lambda known: known[task]["state"] == "in_progress")[task]
    assert (card["holder"], card["claimed"] > 0, card["beat"] > 0) == ("page", True, True)
    assert agent.work("next")["next"] == [later]
    status, said = do(page, task, "claim")
    assert (status, said["error"]) == (409, "not_ready")
    assert do(page, task, "release") == (200, {"released": task})
    assert do(page, task, "release")[0] == 409
    assert agent.work("claim", task)["fence"] == 2
    assert do(page, task, "claim", steal="it is late")[1]["fence"] == 3
    with pytest.raises(Exception, match="page"):
        agent.work("done", task)
    assert do(page, later, "priority", priority=1000) == (200, {"changed": later, "priority": 1000})
    assert until(lambda known: known[later]["priority"] == 1000)
    assert do(page, later, "priority", priority=7)[0] == 409
    events = page.told("GET", f"/api/frames/{task}")[1]["frame"]["events"]
    assert {"claim", "release", "steal"} <= {event["verb"] for event in events}


def test_a_lease_of_the_page_ends_with_its_time(page: Any, agent: Client) -> None:
    """A person who forgets it keeps nobody from the task."""
    task = add(agent, "task")
    assert do(page, task, "claim", seconds=1.0)[0] == 200
    assert agent.work("claim", wait=True)["claimed"] == task


def test_a_page_that_does_not_show_the_queue_is_told_nothing_of_it(page: Any, agent: Client) -> None:
    """To read all tasks costs something."""
    add(agent, "task")
    for line in page.lines():
        assert "work" not in json.loads(line)
        break


def test_a_hostile_goal_holds_no_markup_on_the_wire(page: Any, agent: Client) -> None:
    """Neither on a card, nor in a reason."""
    task = add(agent, HOSTILE)
    agent.work("claim", task)
    agent.work("done", task, {"status": "blocked", "summary": HOSTILE})
    with page.ask("GET", "/api/live?work=1") as answer:
        while line := answer.readline():
            assert not set(line) & set(b"<>&")
            if any(card["id"] == task for card in json.loads(line).get("work", {"cards": []})["cards"]):
                break


@pytest.mark.parametrize("frame", ["f0", "f999999", "none", "%3Cscript%3E"])
def test_a_task_that_is_none_is_said_to_be_missing(page: Any, frame: str) -> None:
    """404 for each verb."""
    for verb, given in [("claim", {}), ("release", {}), ("priority", {"priority": 500})]:
        assert do(page, frame, verb, **given)[0] == 404


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("claim", {"seconds": 0}),
        ("claim", {"seconds": 1e9}),
        ("claim", {"steal": ""}),
        ("claim", {"holder": "h1"}),
        ("release", {"force": True}),
        ("priority", {"priority": "high"}),
    ],
)
def test_nonsense_about_a_task_is_refused(page: Any, agent: Client, verb: str, given: dict[str, Any]) -> None:
    """400, and what is wrong."""
    status, said = do(page, add(agent, "task"), verb, **given)
    assert (status, said["error"]) == (400, "invalid_arguments")
