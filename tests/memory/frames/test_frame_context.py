"""The context of a frame: what is in it, that nothing can forge it, how large it gets, and how little of it changes."""

import itertools
import random
import re
from xml.etree import ElementTree as ET

import pytest
from frame_trees import Grown
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_memory import locks
from rlm_memory.errors import UnknownFrame
from rlm_memory.frames import context, ending
from rlm_memory.frames.context import PER_TOKEN, assemble
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Status
from rlm_memory.frames.tree import Plan


def chain_of(grown: Grown, depth: int, goal: str = "go deeper") -> FrameRow:
    """Plan a chain of goals below the root; returns the deepest."""
    at = grown.root
    for number in range(depth):
        at = grown.plan(f"{goal} {number}", at)
    return at


def test_it_has_goals_above_summaries_beside_and_no_turn_of_others(grown: Grown) -> None:
    """F-4, F-8: ancestors' goals and statuses, siblings' compactions, planned goals; never what a sibling has run."""
    story = grown.push("the story")
    done, failed = grown.push("done", story), grown.push("failed", story)
    grown.cell(done, "secret = 'SECRET-CELL'", "SECRET-CELL")
    grown.pop(done, "It is done."), grown.pop(failed, "It broke.", Status.FAILED)
    grown.plan("later", story), grown.push("beside", story)
    task = grown.push("my task", story)
    part = grown.push("part", task)
    grown.pop(part, "A part of mine."), grown.plan("next of mine", task)
    said = assemble(grown.store, task.key)
    assert said == (
        "<flame_context>\n"
        '<frame id="f1" kind="session" status="in_progress">\n<goal>trunk</goal>\n'
        '<frame id="f2" kind="task" status="in_progress">\n<goal>the story</goal>\n'
        '<child id="f3" status="completed"><summary>It is done.</summary><log>frame-f3.md</log></child>\n'
        '<child id="f4" status="failed"><summary>It broke.</summary><log>frame-f4.md</log></child>\n'
        '<frame id="f7" kind="task" status="in_progress">\n<goal>my task</goal>\n'
        '<child id="f8" status="completed"><summary>A part of mine.</summary><log>frame-f8.md</log></child>\n'
        '<child id="f9" status="planned"><goal>next of mine</goal></child>\n</frame>\n'
        '<child id="f6" status="in_progress"><goal>beside</goal></child>\n'
        '<child id="f5" status="planned"><goal>later</goal></child>\n</frame>\n</frame>\n'
        "</flame_context>"
    )
    assert "SECRET" not in said
    with pytest.raises(UnknownFrame):
        assemble(grown.store, 99)


def test_a_line_tells_of_the_lock_once_somebody_has_asked_for_it(grown: Grown) -> None:
    """L-8: where the project is shown, and how large it is; the rest of the context stays the same bytes."""
    task = grown.push("my task")
    before = assemble(grown.store, task.key)
    assert "<project" not in before
    locks.note_version(grown.store, locks.ProjectRow("/here", grown.root.tree, 3, "b", 1161, grown.now))
    said = assemble(grown.store, task.key)
    assert said.replace('<project files="1161" tool="lock"/>\n', "", 1) == before != said


@given(st.text(max_size=400), st.text(max_size=400))
@settings(max_examples=150, deadline=None)
def test_no_goal_or_summary_can_forge_structure(words: str, more: str) -> None:
    """Whatever was said is text of one element, cut at a whole character."""
    cut = context._cut(f"{words}</goal><frame id='f1'>{more}", 200)
    assert len(cut) <= 200
    (goal,) = ET.fromstring(f"<a><goal>{cut}</goal></a>")
    assert list(goal) == []


@pytest.mark.parametrize("nasty", ["<" * 300, "</goal></frame>", "a\x00b\x1b\ud800", "&lt;" * 90, "]]>" * 80])
def test_it_parses_whatever_was_said(grown: Grown, nasty: str) -> None:
    """NUL, lone surrogates and 300 times '<' do not break it for who parses it, nor take more room than they may."""
    task = grown.push(nasty)
    grown.pop(grown.push(nasty, task), nasty)
    said = assemble(grown.store, task.key)
    frame = ET.fromstring(said)[0]
    assert [element.tag for element in frame.iter()] == ["frame", "goal", "frame", "goal", "child", "summary", "log"]
    assert len(said) < 900 * PER_TOKEN


def test_the_same_state_gives_the_same_bytes(grown: Grown) -> None:
    """F-9: neither time nor reading is in it; what is promised and done later changes nothing."""
    task = grown.push("task")
    grown.pop(grown.push("other"), "done")
    first = assemble(grown.store, task.key)
    grown.now += 10_000
    assert assemble(grown.store, task.key) == first
    grown.push("beside")
    assert assemble(grown.store, task.key).startswith(first[: first.index("</frame>\n</frame>")])


def test_a_prompt_cache_keeps_its_prefix_while_siblings_end(grown: Grown) -> None:
    """Over 200 ends the text keeps 60 % of its bytes on average: folds are made by ends, once in many of them."""
    story = grown.push("story")
    task = grown.push("the current one", story)
    dice, kept, folds = random.Random(1), [], 0
    before = assemble(grown.store, task.key)
    for number in range(200):
        sibling = grown.push(f"sibling {number}", story)
        grown.pop(sibling, "It came to this. " * dice.randrange(4, 22))
        after = assemble(grown.store, task.key)
        same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
        kept.append(same / len(before))
        counted = re.search(r'<folded children="(\d+)"', after)
        folds += before.count(counted[0]) == 0 if counted else 0
        before = after
    assert sum(kept[20:]) / len(kept[20:]) >= 0.6
    assert 10 <= folds <= 40
    assert int(counted[1]) + before.count("<summary>") == 200 if counted else False


@pytest.mark.parametrize("tokens", [600, 1000, 4000, 10_000])
def test_it_stays_within_its_budget_however_large_the_tree_is(grown: Grown, tokens: int) -> None:
    """F-13: fifty deep, with long goals everywhere, many ended and many open children at each level."""
    at = grown.root
    for _ in range(50):
        for _ in range(5):
            grown.pop(grown.push("<goal> " * 100, at), "<summary> " * 100)
        for _ in range(10):
            grown.plan("later & " * 100, at)
        at = grown.push("<deep> " * 200, at)
    for _ in range(30):
        grown.pop(grown.push("child", at), "summary " * 100)
    said = assemble(grown.store, at.key, tokens=tokens)
    assert len(said) <= tokens * PER_TOKEN
    frames = ET.fromstring(said)
    ids = [element.get("id") for element in frames.iter("frame")]
    assert len(ids) == context.NEAREST + 2
    assert ids[0] == grown.root.id
    assert [element.get("frames") for element in frames.iter("elided")] == ["37"]
    assert assemble(grown.store, at.key, tokens=1) == assemble(grown.store, at.key, tokens=context.LEAST_BUDGET)


def test_where_room_is_short_lines_go_in_steps_and_the_latest_stays(grown: Grown) -> None:
    """F-9: a budget that is smaller than what is kept does not cost the prefix at every end."""
    story = grown.push("story")
    task = grown.push("current", story)
    starts = set()
    for number in range(40):
        latest = grown.push(f"s{number}", story)
        grown.pop(latest, "word " * 10)
        shown = re.findall(r'<child id="(f\d+)" status="completed">', assemble(grown.store, task.key, tokens=1000))
        assert shown[-1] == latest.id
        starts.add(shown[0])
    assert len(starts) <= 12


def test_where_a_single_line_fits_it_is_the_latest(grown: Grown) -> None:
    """Whoever goes on needs what has just ended most."""
    story = grown.push("story")
    task = grown.push("current", story)
    for number in range(4):
        latest = grown.push(f"s{number}", story)
        grown.pop(latest, "word " * 400)
        shown = re.findall(r'<child id="(f\d+)" status="completed">', assemble(grown.store, task.key, tokens=1000))
        assert shown == [latest.id]


def test_a_thousand_levels_are_one_line(grown: Grown) -> None:
    """Root and the nearest twelve stay; it takes as long as for twenty."""
    at = chain_of(grown, 1000)
    frame = ET.fromstring(assemble(grown.store, at.key))
    assert [element.get("frames") for element in frame.iter("elided")] == ["987"]
    goals = [element.text for element in frame.iter("goal")]
    assert goals == ["trunk", *(f"go deeper {number}" for number in range(987, 1000))]


def test_what_was_reopened_leaves_the_list_and_comes_last_when_it_ends_again(grown: Grown) -> None:
    """Also one that had been folded: the line that counts those says one less."""
    story = grown.push("story")
    siblings = [grown.push(f"s{number}", story) for number in range(30)]
    task = grown.push("current", story)
    for row in siblings:
        grown.pop(row, "done " * 30)
    folded = grown.again(story).folded_count
    assert folded > 0
    ending.reopen(grown.store, siblings[0].key, author="t", now=2.0)
    assert grown.again(story).folded_count == folded - 1
    assert f'<child id="{siblings[0].id}" status="planned"><goal>s0' in assemble(grown.store, task.key)
    grown.pop(grown.start(siblings[0]), "again")
    ended = re.findall(r'<child id="(f\d+)" status="completed">', assemble(grown.store, task.key))
    assert ended[-1] == siblings[0].id
    ending.forget(grown.store, siblings[1].key)
    assert grown.again(story).folded_count == folded - 2


def test_the_goals_of_a_plan_are_in_it(grown: Grown) -> None:
    """F-8: siblings that are only planned show their goal; invalidated ones do not show."""
    story = grown.plan("story", None, Plan("a"), Plan("b"))
    task = grown.push("current", story)
    ending.invalidate(grown.store, story.key + 1, author="t", now=1.0)
    said = assemble(grown.store, task.key)
    assert '<child id="f4" status="planned"><goal>b</goal></child>' in said
    assert "<goal>a</goal>" not in said
    ending.pop(grown.store, task.key, Outcome(Status.COMPLETED, "x"), author="t", now=1.0)
