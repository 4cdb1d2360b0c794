"""Where the bounds of frames lie, to the character and to the frame: what just fits, and what does not."""

import re
from xml.etree import ElementTree as ET

import pytest
from frame_trees import Grown

from rlm_memory import sessions
from rlm_memory.errors import UnknownFrame
from rlm_memory.frames import context, ending, results, rows, tree
from rlm_memory.frames.context import assemble
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.runtime import Runtime
from rlm_memory.frames.states import Kind, Status
from rlm_memory.frames.tree import Plan


def test_the_bounds_are_those_that_the_documents_name() -> None:
    """F-13: 4,000 tokens of four characters each, 600 at least, and the twelve nearest frames."""
    assert (context.BUDGET, context.PER_TOKEN, context.LEAST_BUDGET, context.NEAREST) == (4000, 4, 600, 12)


@pytest.mark.parametrize(
    ("tokens", "room"),
    [
        (600, (1, 101, 261, 43, 50)),
        (601, (1, 102, 262, 43, 51)),
        (1000, (43, 216, 557, 92, 108)),
        (2000, (120, 548, 1410, 235, 274)),
        (4000, (120, 1400, 3600, 600, 700)),
        (10_000, (120, 1400, 3600, 600, 700)),
    ],
)
def test_room_is_divided_in_the_same_way_for_ever(tokens: int, room: tuple[int, ...]) -> None:
    """F-9, F-13: another division would give other bytes for the same rows, and every prompt cache would miss."""
    assert context._scaled(tokens) == context._Room(*room)


@pytest.mark.parametrize(
    ("said", "longest", "cut"),
    [
        ("a" * 10, 10, "a" * 10),
        ("a" * 11, 10, "a" * 9 + "…"),
        ("<" * 10, 10, "&lt;&lt;…"),
        ("a&" * 5, 10, "a&amp;a…"),
        ("<" * 300, 100, "&lt;" * 23 + "…"),
        ("<", 2, "…"),
        ("a\x00b", 10, "a\N{REPLACEMENT CHARACTER}b"),
    ],
)
def test_a_text_is_cut_where_it_no_longer_fits(said: str, longest: int, cut: str) -> None:
    """Not a character before; an entity is never cut in two."""
    assert context._cut(said, longest) == cut


def test_each_text_of_a_context_has_its_longest_length(grown: Grown) -> None:
    """F-8, F-13: the frame's goal 1,400 characters, other goals 120, summaries of siblings 300, of uncles 100."""
    at = grown.root
    for _ in range(5):
        grown.pop(grown.push("x", at), "s" * 2000)
        at = grown.push("g" * 2000, at)
    grown.plan("p" * 2000, grown.again(grown.root))
    grown.plan("q" * 2000, at)
    frame = ET.fromstring(assemble(grown.store, at.key))[0]
    goals = [len(element.text or "") for element in frame.iter("goal")]
    assert goals == [5, *[120] * 4, 1400, 120]
    # Of five levels above the frame, the nearest shows 300 characters, and the three above that 100.
    assert [len(element.text or "") for element in frame.iter("summary")] == [100, 100, 100, 300]


@pytest.mark.parametrize(("depth", "elided"), [(12, []), (13, []), (14, ["1"])])
def test_the_root_and_twelve_ancestors_stay(grown: Grown, depth: int, elided: list[str]) -> None:
    """F-13: the first that is left out is the fourteenth from below."""
    at = grown.root
    for number in range(depth):
        at = grown.plan(f"goal {number}", at)
    frame = ET.fromstring(assemble(grown.store, at.key))[0]
    assert [element.get("frames") for element in frame.iter("elided")] == elided
    assert len(list(frame.iter("frame"))) == min(depth, 13) + 1


def test_open_children_are_listed_while_they_fit(grown: Grown) -> None:
    """What is left out is one mark; one that just fits is shown."""
    goals = [grown.plan("g" * 100) for _ in range(8)]
    said = assemble(grown.store, grown.root.key)
    line = f'<child id="{goals[0].id}" status="planned"><goal>{"g" * 100}</goal></child>'
    fits = 700 // (len(line) + 1)
    assert said.count("<child ") == fits == 4
    assert said.count("<more/>") == 1
    for goal in goals[fits:]:
        ending.forget(grown.store, goal.key)
    assert "<more/>" not in assemble(grown.store, grown.root.key)
    room = 700 - fits * (len(line) + 1)
    around = len(line) - 100 + 2  # its id has two digits, and a line ends with a newline
    for length, more in ((room - around, 0), (room - around + 1, 1)):
        last = grown.plan("g" * length)
        assert len(last.id) == 3
        said = assemble(grown.store, grown.root.key)
        assert (said.count("<child "), said.count("<more/>")) == (5 - more, more)
        ending.forget(grown.store, last.key)


def ended_in(grown: Grown, row: FrameRow, tokens: int) -> tuple[int, list[str]]:
    """How many ended children a context counts, and the ids that it shows."""
    said = assemble(grown.store, row.key, tokens=tokens)
    counted = re.search(r'<folded children="(\d+)"/>', said)
    return int(counted[1]) if counted else 0, re.findall(r'<child id="(f\d+)" status="completed"', said)


def test_where_room_is_short_as_many_lines_go_as_fit(grown: Grown) -> None:
    """F-9: counted from the first that ever ended, so that the cut stays where it is for four ends."""
    cuts: list[int] = []
    for number in range(13):
        grown.pop(grown.push("s"), "word " * (10 if number < 8 else 9))
        counted, shown = ended_in(grown, grown.root, 1000)
        assert counted + len(shown) == len(cuts) + 1
        cuts.append(counted)
    assert cuts == [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12]
    assert ended_in(grown, grown.root, 600) == (12, ["f14"])
    assert ended_in(grown, grown.root, 4000) == (0, [f"f{number}" for number in range(2, 15)])


def test_where_much_fits_eight_lines_go_at_once(grown: Grown) -> None:
    """F-9: also after a fold, whose lines count."""
    cuts: list[int] = []
    for _ in range(30):
        grown.pop(grown.push("s"), "")
        cuts.append(ended_in(grown, grown.root, 2000)[0])
    assert cuts == [*[0] * 12, *[8] * 8, *[16] * 4, 13, *[16] * 3, 24, 24]


def test_a_fold_takes_the_older_half_when_the_twenty_fifth_ends(grown: Grown) -> None:
    """F-13: by number here; by characters it is the same at 3,600."""
    for number in range(1, 26):
        grown.pop(grown.push("s"), "x")
        root = grown.again(grown.root)
        assert root.folded_count == (0 if number <= results.MOST_SHOWN else 13)
    assert results.MOST_SHOWN == 24
    story = grown.push("story")
    for number in range(1, 11):
        grown.pop(grown.push("s", story), "x" * 300)
        assert grown.again(story).folded_count == (0 if number * (300 + results.LINE) <= results.SHOWN else 6)


def test_lists_of_an_outcome_have_a_hundred_items_of_five_hundred_characters(grown: Grown) -> None:
    """What is longer is cut with a mark."""
    task = grown.push("task")
    grown.pop(task, artifacts=[f"{number:03}" + "a" * 500 for number in range(101)], decisions=["d" * 500])
    kept = rows.compaction_of(grown.store, task.key)
    assert kept is not None
    assert (len(kept.artifacts), {len(item) for item in kept.artifacts}) == (100, {500})
    assert kept.decisions == ("d" * 500,)


def test_a_session_that_ends_keeps_the_extract_and_owes_no_kernels_end(grown: Grown) -> None:
    """F-11: who ends the session ends its kernel; the fold of the frame above counts its goals too."""
    story = grown.push("story")
    for _ in range(results.MOST_SHOWN):
        grown.pop(grown.push("s", story), "x")
    worker = grown.open_session("worker")
    task = grown.start(grown.plan("task", story), worker)
    assert [row.id for row in ending.end_session(grown.store, worker.key, author="t", now=2.0)] == [task.id]
    owed = [one.what for one in Runtime(grown.store, None).owed() if one.frame == task.key]  # type: ignore[arg-type]
    assert owed == ["log", "notebook"]
    kept = rows.compaction_of(grown.store, task.key)
    assert kept is not None
    assert (kept.source, kept.text) == ("extract", "blocked: task (no cell ran)")
    assert grown.again(story).folded_count == 13


def test_a_frame_of_a_session_goes_when_nothing_holds_it(grown: Grown) -> None:
    """Its session, a goal below it, or that it is a goal itself: each alone keeps it."""
    one, two = grown.open_session("one"), grown.open_session("two")
    fork = tree.note_fork(grown.store, one, grown.session, now=1.0)
    below = tree.note_fork(grown.store, two, one, now=1.0)
    goal = grown.plan("goal", below)
    ending.end_session(grown.store, one.key, author="t", now=2.0)
    assert grown.again(fork).session is None  # something is below it
    ending.end_session(grown.store, two.key, author="t", now=2.0)
    assert grown.again(below).session is None  # a goal is below it
    ending.forget(grown.store, goal.key)
    for gone in (below, fork):  # the one above goes with it
        with pytest.raises(UnknownFrame):
            grown.again(gone)
    assert grown.again(grown.root).session == grown.session.key
    story = grown.plan("story")
    part = grown.plan("part", story)
    ending.forget(grown.store, part.key)
    assert grown.again(story).kind is Kind.TASK


def test_what_fails_with_a_frame_is_folded_where_it_was(grown: Grown) -> None:
    """F-13: below the frame that has ended, which may be reopened."""
    story = grown.push("story")
    for _ in range(results.MOST_SHOWN):
        grown.pop(grown.push("s", story), "x")
    grown.push("last", story)
    grown.pop(story, status=Status.FAILED, children="fail")
    assert grown.again(story).folded_count == 13


def test_a_frame_of_a_session_is_adopted_whatever_becomes_of_goals(grown: Grown) -> None:
    """A fork without a goal is nobody's to fail: it moves up with all that is below it."""
    story = grown.start(grown.plan("story"), grown.open_session("of-story"))
    fork = tree.note_fork(grown.store, grown.open_session("aside"), sessions.get(grown.store, "of-story"), now=1.0)
    below = grown.push("below", fork)
    done = grown.pop(story)
    assert (done.adopted, done.failed) == ([fork.id], [])
    assert (grown.again(fork).parent, grown.again(fork).depth) == (grown.root.key, 1)
    assert (grown.again(below).status, grown.again(below).depth) == (Status.IN_PROGRESS, 2)


def test_the_goal_of_a_session_is_the_one_that_it_was_forked_for(grown: Grown) -> None:
    """P-10: what nobody names a frame for is that goal's; in a session that goals share, it is nobody's."""
    assert rows.own_goal(rows.goals_running(grown.store, grown.session.key)) is None
    shared = grown.push("shared")
    assert rows.own_goal(rows.goals_running(grown.store, grown.session.key)) is None
    worker = grown.open_session("worker")
    task = grown.plan("task", shared)
    tree.start(grown.store, task.key, author="t", now=1.0, push=True)
    tree.keep_push(grown.store, task.key, worker.key, grown.session.key)
    part = grown.start(grown.plan("part", task), worker)
    assert rows.own_goal(rows.goals_running(grown.store, worker.key)) == grown.again(task)
    assert part.depth == 3


def test_what_is_planned_on_the_whole_way_up_starts(grown: Grown) -> None:
    """Also the frame just above the one that is pushed."""
    top = grown.plan("top", None, Plan("mid", [Plan("leaf")]))
    mid, leaf = (row for row in rows.whole(grown.store, top.key) if row.goal != "top")
    grown.start(leaf)
    assert grown.status(top, mid, leaf) == [Status.IN_PROGRESS] * 3
    assert rows.frame_key(leaf.id) == leaf.key


def test_ended_children_that_just_fit_are_all_shown(grown: Grown) -> None:
    """F-13: each line counts with its line break; with a character less the oldest go."""
    for number in range(4):
        grown.pop(grown.push(f"goal {number}"))
    (row,) = grown.store.rows("SELECT * FROM frames WHERE key = :root", root=grown.root.key)
    lines = context._ended(grown.store, row, 100_000, 300)
    whole = sum(len(line) + 1 for line in lines)
    assert context._ended(grown.store, row, whole, 300) == lines
    assert context._ended(grown.store, row, whole - 1, 300)[0].startswith("<folded")
