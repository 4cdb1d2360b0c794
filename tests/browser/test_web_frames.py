"""The tree of frames in a real browser: what it shows and does, by mouse and keyboard, and a thousand goals."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from rlm_client.client import call_tool

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
DRAWN = 60
"""Rows that are elements at most, in a window of this height: a thousand goals cost no more than these."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[str]:
    """A folder of its own, and so a tree of its own; gives the name of the session that works there."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield f"work-{tmp_path.name[-12:]}"
    os.chdir(before)


@pytest.fixture
def tree(page: Page, site: dict[str, str]) -> Callable[[str], Page]:
    """Open the page of the frames, or of one frame."""

    def tree(frame: str = "") -> Page:
        page.goto(site["address"])
        expect(page.locator("#link")).to_have_text("Live")
        page.goto(f"{site['url']}#/f{'/' * bool(frame)}{frame}")
        expect(page.locator("#goals .goal").first).to_be_visible()
        return page

    return tree


def goal(page: Page, frame: str) -> Locator:
    """Find the row of a frame."""
    return page.locator(f'#goals [data-key="{frame}"]')


def button(page: Page, name: str) -> Locator:
    """Find a button by its whole name."""
    return page.get_by_role("button", name=name, exact=True)


def status_of(session: str, frame: str) -> Any:
    """Ask the daemon for a frame, as an agent does."""
    return call_tool("frame", {"id": frame}, session=session)


def test_a_goal_is_planned_pushed_and_popped_on_the_page(tree: Any, project: str) -> None:
    """Every verb; the rows follow by themselves; what came of the goal stands beside it."""
    call_tool("eval_code", {"code": "n = 42"}, session=project)
    root = call_tool("plan", {"goal": "find the fault"}, session=project)
    page, story = tree(root["frame"]), root["frame"]
    expect(goal(page, story)).to_have_attribute("data-status", "planned")
    expect(page.locator("#frame .wanted")).to_have_text("find the fault")

    button(page, "Plan…").click()
    page.get_by_label("Goals").fill("read the log\n  count errors\nwrite it up")
    button(page, "Plan").click()
    expect(page.locator("#said")).to_contain_text("planned")
    expect(page.get_by_role("treeitem").filter(has_text="count errors")).to_have_attribute("aria-level", "4")

    button(page, "Push").click()
    expect(goal(page, story)).to_have_attribute("data-status", "in_progress")
    fork = goal(page, story).locator("a.in")
    expect(fork).to_be_visible()
    name = fork.inner_text()
    assert call_tool("eval_code", {"code": "n"}, session=name)["result"] == "42"
    fork.click()
    expect(page.locator("#name")).to_have_text(name)
    page.locator("#facts").get_by_role("link", name=story).click()
    expect(page.locator("#frame h2")).to_have_text(f"Frame {story}")

    button(page, "Push a goal…").click()
    page.get_by_label("Goal", exact=True).last.fill("look here first")
    page.get_by_label("It runs in").select_option("here")
    button(page, "Push").last.click()
    here = page.get_by_role("treeitem").filter(has_text="look here first")
    expect(here).to_have_attribute("data-status", "in_progress")
    button(page, "Pop…").click()
    page.get_by_label("Summary").last.fill("too early")
    button(page, "Pop").click()
    expect(page.locator("#said")).to_contain_text("frames run below")
    page.get_by_label("Goals below").select_option("fail")
    page.get_by_label("Artifacts").fill("report.md\nfigures.csv")
    button(page, "Pop").click()
    expect(goal(page, story)).to_have_attribute("data-status", "completed")
    expect(goal(page, story)).to_contain_text("too early")
    expect(goal(page, story)).to_contain_text("2 artifacts")
    expect(page.locator("#frame")).to_contain_text("figures.csv")
    expect(here).to_have_count(0)  # below what has ended nothing is open: it is closed
    assert status_of(project, story)["summary"] == "too early"
    for label, kind in [("Log", "md"), ("Notebook", "ipynb"), ("Tree", "json")]:
        with page.expect_download() as download:
            page.locator("#frame").get_by_role("button", name=label, exact=True).click()
        assert download.value.suggested_filename == f"frame-{story}.{kind}"
        assert "look here first" in Path(download.value.path()).read_text() or kind != "json"


def test_what_is_not_wanted_is_invalidated_reopened_and_forgotten(tree: Any, project: str) -> None:
    """With what is planned below; current is moved for the clients of the tree; forgetting asks before."""
    planned = call_tool("plan", {"goal": "maybe", "children": ["a part"]}, session=project)
    frame = planned["frame"]
    page = tree(frame)
    button(page, "Make current").click()
    expect(page.locator("#said")).to_contain_text(f"pass session={frame}")
    button(page, "Invalidate…").click()
    button(page, "Invalidate").click()
    expect(goal(page, frame)).to_have_attribute("data-status", "invalidated")
    expect(button(page, "Pop…")).to_have_count(0)
    button(page, "Reopen").click()
    expect(goal(page, frame)).to_have_attribute("data-status", "planned")
    button(page, "Forget…").click()
    button(page, "Forget").click()
    expect(goal(page, frame)).to_have_count(0)
    expect(page.locator("#frame")).to_be_hidden()


def test_a_hostile_goal_is_only_ever_text(tree: Any, page: Page, project: str, site: dict[str, str]) -> None:
    """In its row, its title and its details; no script runs, and no address is asked."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a goal's script ran: {dialog.message}"))
    pushed = call_tool("push", {"goal": HOSTILE, "fork": False}, session=project)
    given = {"id": pushed["frame"], "summary": HOSTILE, "artifacts": [HOSTILE], "decisions": [HOSTILE]}
    call_tool("pop", given, session=project)
    tree(pushed["frame"])
    row = goal(page, pushed["frame"])
    expect(row.locator(".what")).to_have_text(HOSTILE)
    expect(row.locator(".came")).to_have_text(HOSTILE)
    expect(page.locator("#frame .wanted")).to_have_text(HOSTILE)
    expect(page.locator("#frame li").first).to_have_text(HOSTILE)
    assert page.locator("img:not(.brand img), script:not([src]), iframe, object").count() == 0
    assert {url for url in asked if not url.startswith(site["url"])} == set()


def test_the_tree_is_used_by_keyboard_and_told_to_a_screen_reader(tree: Any, project: str) -> None:
    """One stop for Tab; arrows go, open and close; Enter shows. Each item says its level, place and state."""
    top = call_tool(
        "plan", {"goal": "top", "children": [{"goal": "mid", "children": ["leaf"]}, "side"]}, session=project
    )
    frame, page = top["frame"], tree()
    number = int(frame[1:])
    mid, leaf, side = (f"f{number + step}" for step in (1, 2, 3))
    expect(page.get_by_role("tree", name="Frames")).to_be_visible()
    goal(page, frame).focus()
    assert page.locator('#goals [tabindex="0"]').count() == 1
    expect(goal(page, frame)).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowRight")
    expect(goal(page, mid)).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(goal(page, mid)).to_have_attribute("aria-expanded", "false")
    expect(goal(page, leaf)).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(goal(page, side)).to_be_focused()
    expect(goal(page, side)).to_have_attribute("aria-posinset", "2")
    expect(goal(page, side)).to_have_attribute("aria-setsize", "2")
    page.keyboard.press("Enter")
    expect(page.locator("#frame h2")).to_have_text(f"Frame {side}")
    expect(goal(page, side)).to_have_attribute("aria-selected", "true")
    goal(page, side).focus()
    page.keyboard.press("ArrowLeft")
    expect(goal(page, frame)).to_be_focused()
    call_tool("plan", {"goal": "news", "parent": frame}, session=project)
    expect(page.get_by_role("treeitem").filter(has_text="news")).to_be_visible()
    expect(goal(page, frame)).to_be_focused()


def test_a_thousand_goals_cost_what_a_screen_costs(tree: Any, project: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Only rows in view are elements. The end is a key away. Told, not asserted: the time of one change, and of all."""
    for part in range(4):
        children = [
            {"goal": f"step {part}.{n}", "children": [f"part {part}.{n}.{m}" for m in range(4)]} for n in range(50)
        ]
        call_tool("plan", {"goal": f"chapter {part}", "children": children}, session=project)
    page = tree()
    button(page, "Expand all").click()
    expect(page.locator("#goals [aria-setsize]").first).to_be_visible()
    assert 10 < page.locator("#goals .goal").count() <= DRAWN
    page.locator("#goals .goal").first.focus()
    page.keyboard.press("End")
    last = page.get_by_role("treeitem").filter(has_text="part 3.49.3")
    expect(last).to_be_focused()
    assert page.locator("#goals .goal").count() <= DRAWN
    made = call_tool("plan", {"goal": "one more"}, session=project)
    expect(goal(page, made["frame"])).to_be_attached()
    page.keyboard.press("Home")
    page.keyboard.press("End")
    expect(goal(page, made["frame"])).to_be_focused()
    took = page.evaluate(UPDATE)
    with capsys.disabled():
        print(f"\n1,000 goals: {json.dumps(took)} ms; {page.locator('#goals .goal').count()} rows are elements")


UPDATE = """async () => {
  const { learnFrames } = await import("/frames.js");
  const last = [...document.querySelectorAll("#goals .goal")].at(-1).dataset.key;
  const row = (id, parent, goal) => ({ id, parent, kind: "task", goal, status: "planned", session: null,
    started: null, ended: null, summary: "", artifacts: 0 });
  const timed = (whole, rows) => {
    const began = performance.now();
    learnFrames({ whole, rows, gone: [], current: {} });
    document.body.getBoundingClientRect();
    return performance.now() - began;
  };
  const middle = (times) => times.sort((a, b) => a - b)[times.length >> 1].toFixed(1);
  const turns = [...Array(20).keys()];
  const update = middle(turns.map((turn) => timed(false, [row(last, "f1", `turn ${turn}`)])));
  const all = [...Array(1000).keys()].map((n) => row(`f${n + 1}`, n ? `f${Math.ceil(n / 5)}` : null, `goal ${n}`));
  return { update, whole: middle(turns.map(() => timed(true, all))) };
}"""
