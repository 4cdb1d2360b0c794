"""The board: where each task stands, who has it and since when, what it waits for, and who is in whose way."""

import pytest
from frame_trees import Grown

from rlm_memory.frames import edges, ending, rows, tree
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import EdgeType, Kind, Status
from rlm_memory.work import board, holders, leases, paths
from rlm_memory.work.board import Board, Card, Conflict, Link
from rlm_memory.work.holders import STALE_SECONDS, Holder


@pytest.fixture
def agent(grown: Grown) -> Holder:
    """One that claims."""
    return holders.enlist(grown.store, "process", "process:1", label="client 7", worktree="", now=grown.now)


def look(grown: Grown, now: float | None = None) -> Board:
    """Read the board."""
    return board.read(grown.store, now=grown.now if now is None else now)


def card(grown: Grown, row: FrameRow) -> Card:
    """Find the card of a frame."""
    return look(grown).cards[row.id]


def claim(grown: Grown, row: FrameRow, holder: Holder) -> None:
    assert leases.claim(grown.store, holder, row.tree, now=grown.now, key=row.key) is not None


def test_a_card_says_where_its_task_stands(grown: Grown, agent: Holder) -> None:
    """Ready, waiting with what for, in progress with owner and age, stale, blocked with why, done."""
    first, second = grown.plan("first"), grown.plan("second")
    edge = Link(first.id, "blocks", True)
    edges.add(grown.store, second.key, first.key, EdgeType.BLOCKS, author="x", now=grown.now)
    assert (card(grown, first).state, card(grown, second).state) == ("ready", "waiting")
    assert card(grown, second).links == (edge,)
    claim(grown, first, agent)
    held = card(grown, first)
    assert (held.state, held.holder, held.claimed, held.beat) == ("in_progress", "client 7", grown.now, grown.now)
    later = grown.now + STALE_SECONDS + 1
    assert look(grown, later).cards[first.id].state == "stale"
    said = Outcome(Status.BLOCKED, "Nobody knows the colour.")
    ending.pop(grown.store, first.key, said, author="x", now=grown.now)
    assert (card(grown, first).state, card(grown, first).reason) == ("blocked", "Nobody knows the colour.")
    assert card(grown, first).holder == ""
    ending.reopen(grown.store, first.key, author="x", now=grown.now)
    claim(grown, first, agent)
    ending.pop(grown.store, first.key, Outcome(Status.COMPLETED, "Done."), author="x", now=grown.now)
    assert (card(grown, first).state, card(grown, second).state) == ("completed", "ready")
    assert card(grown, second).links == (Link(first.id, "blocks", False),)
    assert card(grown, first).reason == "", "only what is in the way has to say why"


def test_a_story_whose_tasks_have_ended_asks_to_be_popped(grown: Grown, agent: Holder) -> None:
    """Nobody is handed it, so only the board can say so."""
    story = tree.plan(grown.store, tree.Plan("story", kind=Kind.STORY), grown.root.key, author="x", now=grown.now)
    task = grown.plan("task", story)
    assert not card(grown, story).ends
    claim(grown, task, agent)
    assert not card(grown, story).ends
    ending.pop(grown.store, task.key, Outcome(Status.COMPLETED, ""), author="x", now=grown.now)
    assert card(grown, story).ends


def test_who_is_in_whose_way_is_told(grown: Grown, agent: Holder) -> None:
    """Two leases on one path, what could begin if another had ended, and a write that a hook has refused."""
    other = holders.enlist(grown.store, "process", "process:2", label="client 8", worktree="", now=grown.now)
    one, two, three, free = (grown.plan(name) for name in ("one", "two", "three", "free"))
    paths.declare(grown.store, one.key, ["/src/"])
    paths.declare(grown.store, three.key, ["/src/a.py", "/docs/"])
    paths.declare(grown.store, free.key, ["/srcs/"])
    claim(grown, one, agent)
    claim(grown, two, other)
    held_back = Conflict("ready", grown.root.id, "/src/a.py", three.id, one.id)
    assert look(grown).conflicts == [held_back]
    paths.declare(grown.store, two.key, ["/src/b/"])  # once it is claimed nobody looks
    assert look(grown).conflicts == [Conflict("leases", grown.root.id, "/src/b/", one.id, two.id), held_back]
    leases.free(grown.store, other.id, now=grown.now, why="gone")
    assert "leases" not in {found.kind for found in look(grown).conflicts}
    rows.note(grown.store, one.key, board.REFUSED_WRITE, "client 9", 5.0, path="src/x.py")
    refused = Conflict("write", grown.root.id, "src/x.py", "", one.id, "client 9", 5.0)
    assert look(grown).conflicts[-1] == refused


def test_frames_of_sessions_are_no_cards(grown: Grown) -> None:
    """A tree without a goal is not on the board."""
    assert (look(grown).cards, look(grown).roots) == ({}, {})
    made = grown.plan("goal")
    assert (list(look(grown).cards), look(grown).roots) == ([made.id], {grown.root.id: grown.root.tree})
