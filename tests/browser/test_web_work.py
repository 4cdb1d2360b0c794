"""The queue in a real browser: the board, what waits for what, who is in whose way, and what a person does there."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from rlm_client import Client

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
DRAWN = 120
"""Cards that are elements at most, in a window of this height: a thousand tasks cost no more than these."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Client]:
    """An agent in a repository of its own, whose queue is the newest one, which the page shows first."""
    before, folder = Path.cwd(), tmp_path / f"shop-{tmp_path.name[-8:]}"
    folder.mkdir()
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    os.chdir(folder)
    with Client() as agent:
        yield agent
    os.chdir(before)


@pytest.fixture
def board(page: Page, site: dict[str, str]) -> Callable[[str], Page]:
    """Open the page of the queue, or one of its other views."""

    def board(view: str = "") -> Page:
        page.goto(site["address"])
        expect(page.locator("#link")).to_have_text("Live")
        page.goto(f"{site['url']}#/w{'/' * bool(view)}{view}")
        expect(page.locator("#work-facts")).not_to_be_empty()
        return page

    return board


def add(agent: Client, goal: str, **data: Any) -> str:
    """Add a task to the queue."""
    return str(agent.work("add", data={"goal": goal, **data})["added"])


def card(page: Page, lane: str, task: str) -> Locator:
    """Find a card in one of the columns."""
    return page.locator(f'[data-lane="{lane}"] [data-key="{task}"] button')


def button(page: Page, name: str) -> Locator:
    """Find a button of the dialog by its whole name."""
    return page.locator("#ask-buttons").get_by_role("button", name=name, exact=True)


def test_the_board_shows_where_each_task_stands_and_follows(board: Any, agent: Client) -> None:
    """Ready, in progress with its owner, waiting, blocked with why, done: by themselves, as agents work."""
    first = add(agent, "write the form", priority=750)
    second = add(agent, "write the page", blocks=[first])
    page = board()
    expect(card(page, "ready", first)).to_contain_text("write the form")
    expect(card(page, "waiting", second)).to_contain_text(f"waits for {first}")
    agent.work("claim", first)
    expect(card(page, "in_progress", first)).to_contain_text("client")
    agent.work("done", first, {"summary": "It posts."})
    expect(card(page, "done", first)).to_be_visible()
    expect(card(page, "ready", second)).to_be_visible()
    agent.work("claim", second)
    agent.work("done", second, {"status": "blocked", "summary": "Which colour?"})
    expect(card(page, "blocked", second)).to_contain_text("Which colour?")
    expect(page.locator("#work-facts")).to_have_text("1 blocked · 1 done")


def test_a_person_claims_releases_steals_unblocks_and_sets_priorities(board: Any, agent: Client) -> None:
    """What a person needs when agents are away: each is in the log of the tree, under `page`."""
    task = add(agent, "deploy")
    page = board()
    card(page, "ready", task).click()
    button(page, "Priority…").click()
    page.get_by_label("Priority", exact=True).select_option("1000")
    button(page, "Change").click()
    expect(card(page, "ready", task)).to_have_attribute("data-priority", "1000")
    card(page, "ready", task).click()
    button(page, "Claim…").click()
    page.get_by_label("For", exact=True).select_option("14400")
    button(page, "Claim").click()
    expect(page.locator("#said")).to_contain_text(f"you have claimed {task}")
    expect(card(page, "in_progress", task)).to_contain_text("page")
    assert agent.work("next")["in_progress"] == [task]
    card(page, "in_progress", task).click()
    button(page, "Release…").click()
    button(page, "Release").click()
    expect(card(page, "ready", task)).to_contain_text("attempt 2")
    assert agent.work("claim")["attempt"] == 2
    expect(card(page, "in_progress", task)).to_contain_text("client")
    card(page, "in_progress", task).click()
    button(page, "Steal…").click()
    page.get_by_label("Why").fill("it is urgent")
    button(page, "Steal").click()
    expect(card(page, "in_progress", task)).to_contain_text("page")
    with pytest.raises(Exception, match="page"):
        agent.work("done", task, {"summary": "too late"})
    agent.work("release", task, {"force": True})
    agent.work("claim", task)
    agent.work("done", task, {"status": "blocked", "summary": "no key"})
    card(page, "blocked", task).click()
    expect(page.locator("#ask")).to_contain_text("no key")
    button(page, "Unblock").click()
    expect(card(page, "ready", task)).to_be_visible()
    page.locator("#board").get_by_role("button").first.click()
    page.get_by_role("link", name="All its records").click()
    for verb in ("claim", "release", "steal", "priority", "reopen"):
        expect(page.locator("#frame .events")).to_contain_text(verb)


def test_a_queue_in_which_nothing_moves_says_why(board: Any, agent: Client) -> None:
    """And leads to what has to be decided."""
    first, later = add(agent, "first"), add(agent, "later")
    agent.work("add", later, {"blocks": [first]})
    agent.work("claim", first)
    agent.work("done", first, {"status": "failed", "summary": "no server"})
    page = board()
    expect(page.locator("#work-stuck")).to_contain_text(f"{first} failed; tasks waiting for it: 1")
    page.locator("#work-stuck").get_by_role("button", name=first).click()
    button(page, "Reopen").click()
    expect(page.locator("#work-stuck")).to_be_hidden()
    expect(card(page, "ready", first)).to_be_visible()


def test_the_graph_and_the_conflicts_are_shown(board: Any, agent: Client) -> None:
    """What waits stands to the right of what it waits for; a task whose path another one has is named."""
    first, other = add(agent, "first", paths=["src/"]), add(agent, "other", paths=["src/a.py"])
    last = add(agent, "last", blocks=[first])
    agent.work("claim", first)
    page = board("graph")
    node = page.locator("#graph .node")
    expect(node).to_have_count(2)
    left, right = (page.locator(f'#graph [data-key="{task}"].node').bounding_box() for task in (first, last))
    assert left is not None
    assert right is not None
    assert left["x"] + left["width"] < right["x"]
    expect(page.locator("#graph path")).to_have_count(1)
    page.locator(f'#graph [data-key="{first}"].node').focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(f'#graph [data-key="{last}"].node')).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#ask-title")).to_have_text(f"Task {last}")
    button(page, "Close").click()
    page.get_by_role("link", name="Conflicts (1)").click()
    expect(page.locator("#conflicts li")).to_have_count(1)
    expect(page.locator("#conflicts li")).to_contain_text(f"src/a.py{other} and {first}")


def test_the_board_is_used_by_keyboard(board: Any, agent: Client) -> None:
    """One stop for Tab; arrows go along a column and to the next one that has cards."""
    tasks = [add(agent, f"task {n}") for n in range(3)]
    later = add(agent, "later", blocks=[tasks[0]])
    page = board()
    card(page, "ready", tasks[0]).focus()
    assert page.locator('#board button[tabindex="0"]').count() == 1
    page.keyboard.press("ArrowDown")
    expect(card(page, "ready", tasks[1])).to_be_focused()
    page.keyboard.press("End")
    expect(card(page, "ready", tasks[2])).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(card(page, "waiting", later)).to_be_focused()
    agent.work("claim", tasks[0])  # news do not move it
    expect(card(page, "in_progress", tasks[0])).to_be_visible()
    expect(card(page, "waiting", later)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#ask-title")).to_have_text(f"Task {later}")


def test_a_hostile_goal_and_reason_are_only_ever_text(board: Any, page: Page, agent: Client) -> None:
    """On the card, in the graph, in the dialog; no script runs."""
    page.on("dialog", lambda dialog: pytest.fail(f"a goal's script ran: {dialog.message}"))
    task = add(agent, HOSTILE, paths=[HOSTILE])
    add(agent, "later", blocks=[task])
    agent.work("claim", task)
    agent.work("done", task, {"status": "blocked", "summary": HOSTILE})
    board()
    expect(card(page, "blocked", task).locator(".what")).to_have_text(HOSTILE)
    card(page, "blocked", task).click()
    expect(page.locator("#ask-body")).to_contain_text(HOSTILE)
    button(page, "Close").click()
    page.get_by_role("link", name="Graph").click()
    expect(page.locator("#graph .node .what").first).to_have_text(HOSTILE)
    assert page.locator("img:not(.brand img), script:not([src]), iframe, object").count() == 0


def test_a_thousand_tasks_cost_what_a_screen_costs(
    board: Any, agent: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only cards in view are elements. The end is a key away. Times are told, not asserted."""
    page = board() if agent.work("add", data={"goal": "first"}) else None
    assert page is not None
    took = page.evaluate(MANY)
    with capsys.disabled():
        print(f"\n1,000 tasks: {json.dumps(took)} ms")
    assert page.locator("#board .card").count() <= DRAWN
    assert page.locator('[data-lane="ready"] h2 .number').inner_text() == "250"
    card(page, "ready", "f100000").focus()
    page.keyboard.press("End")
    expect(card(page, "ready", "f100996")).to_be_focused()
    assert page.locator("#board .card").count() <= DRAWN


MANY = """async () => {
  const { learnWork } = await import("/work.js");
  const state = ["ready", "waiting", "in_progress", "completed"];
  const made = Array.from({ length: 1000 }, (_, n) => ({
    id: `f${100000 + n}`, root: "f99999", parent: "f99999", kind: "task", goal: `task ${n}`, state: state[n % 4],
    priority: 500, attempt: 0, holder: "client 1", claimed: 1, beat: 1, reason: "", ends: false, paths: [],
    links: n > 3 ? [n - 1, n - 3].map((on) => ({ on: `f${100000 + on}`, type: "blocks", waits: n % 4 === 1 })) : [],
  }));
  const time = (deed) => {
    const start = performance.now();
    deed();
    document.body.offsetHeight;
    return performance.now() - start;
  };
  const whole = { whole: true, cards: made, gone: [], conflicts: [], stuck: [], roots: { f99999: "/many/.git" } };
  const all = time(() => learnWork(whole));
  const moved = [{ ...made[7], state: "ready" }, { ...made[8], state: "waiting" }];
  const one = time(() => learnWork({ whole: false, cards: moved, gone: [] }));
  location.hash = "#/w/graph";
  await new Promise((done) => setTimeout(done, 50));
  const graph = time(() => learnWork({ whole: false, cards: [{ ...made[9], state: "ready" }], gone: [] }));
  const nodes = document.querySelectorAll("#graph .node").length;
  learnWork({ whole: false, cards: [made[7], made[8], made[9]], gone: [] });
  location.hash = "#/w";
  await new Promise((done) => setTimeout(done, 50));
  return { all: Math.round(all), one: Math.round(one), graph: Math.round(graph), nodes };
}"""
