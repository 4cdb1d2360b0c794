"""Leases: a claim is for one holder, tied to its life, and a fence tells one claim from the next."""

from dataclasses import replace

import pytest
from frame_trees import Grown, hints

from rlm_memory.errors import FrameStatusRefused, LeaseLost, NotReady, PathTaken
from rlm_memory.frames import ending, rows
from rlm_memory.frames.results import Outcome
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Status
from rlm_memory.work import board, holders, leases, paths, progress
from rlm_memory.work.holders import STALE_SECONDS, Anchor, Holder
from rlm_memory.work.leases import Lease


@pytest.fixture
def one(grown: Grown) -> Holder:
    return enlisted(grown, "one")


@pytest.fixture
def two(grown: Grown) -> Holder:
    return enlisted(grown, "two")


def enlisted(grown: Grown, name: str, kin: str | None = None) -> Holder:
    return holders.enlist(grown.store, "connection", name, label=name, kin=kin, now=grown.now)


def claim(grown: Grown, holder: Holder, row: FrameRow | None = None) -> Lease | None:
    key = None if row is None else row.key
    return leases.claim(grown.store, holder, grown.root.tree, now=grown.now, key=key)


def pop(grown: Grown, row: FrameRow, holder: Holder | None, fence: int | None = None) -> None:
    """End a frame as its holder does: the check and the end are one transaction."""
    with grown.store.transaction():
        leases.check(grown.store, grown.again(row), None if holder is None else holder.id, fence, now=grown.now)
        ending.pop(grown.store, row.key, Outcome(Status.COMPLETED, "done"), author="t", now=grown.now)


def test_a_claim_starts_a_frame_and_those_above_it(grown: Grown, one: Holder, two: Holder) -> None:
    """E-9: the second who asks gets another frame; the third nothing."""
    story = grown.plan("story")
    first, second = grown.plan("first", story), grown.plan("second", story)
    got = claim(grown, one)
    assert (got and got.frame, got and got.fence) == (first.id, 1)
    assert grown.status(story, first, second) == [Status.IN_PROGRESS, Status.IN_PROGRESS, Status.PLANNED]
    other = claim(grown, two)
    assert other is not None
    assert other.frame == second.id
    assert claim(grown, two) is None
    with pytest.raises(NotReady, match=rf"{first.id} cannot be claimed: {one.id} \(one\) has it"):
        claim(grown, two, first)
    with pytest.raises(NotReady, match="frames below it are still open"):
        claim(grown, two, story)
    for row in (first, second):
        pop(grown, row, None)
    last = claim(grown, two)
    assert last is not None
    assert (last.frame, last.fence) == (story.id, 1)  # what is left of it, once nothing below it is open


def test_who_claims_the_frame_of_a_dead_holder_gets_what_that_left(grown: Grown, one: Holder, two: Holder) -> None:
    """E-6: it is told which attempt this is; the dead one's fence is refused, and it is told who has the frame now."""
    row = grown.plan("task")
    first = claim(grown, one)
    assert first is not None
    progress.update(grown.store, row.key, {"phase": "testing", "next_step": "fix it"}, now=1.0)
    assert leases.free(grown.store, one.id, now=1.0, why="its connection ended") == [row.id]
    again = claim(grown, two)
    assert again is not None
    assert (again.fence, again.progress["phase"]) == (2, "testing")
    assert progress.resuming(row.id, progress.get(grown.store, row.key)) == "Resuming f2 from: testing, next: fix it"
    told = rf"{two.id} \(two\) has {row.id} now, with fence 2; your claim has fence 1"
    with pytest.raises(LeaseLost, match=told):
        pop(grown, row, one)
    with pytest.raises(LeaseLost, match="your claim has fence 1"):
        pop(grown, row, None, fence=1)
    pop(grown, row, two, fence=2)
    assert (grown.again(row).holder, grown.again(row).fence) == (None, 2)


def test_who_comes_back_in_time_has_its_frame_with_the_same_fence(grown: Grown) -> None:
    """A client that restarts its server goes on, by its own name or as kin; a stranger does not get it so."""
    old, stranger = enlisted(grown, "front 1", "client"), enlisted(grown, "other", "someone")
    row = grown.plan("task")
    assert claim(grown, old) is not None
    leases.free(grown.store, old.id, now=1.0, why="test")
    new = enlisted(grown, "front 2", "client")
    back = claim(grown, new)
    assert back is not None
    assert (back.returned, back.fence, back.frame) == (True, 1, row.id)
    leases.free(grown.store, new.id, now=1.0, why="test")
    pop_late = grown.plan("other task")
    assert claim(grown, stranger, pop_late) is not None
    pop(grown, row, new)  # it never asked again: nobody had claimed the frame
    assert grown.status(row) == [Status.COMPLETED]
    assert [event.verb for event in rows.events_of(grown.store, row.key) if event.author == new.id] == [
        "returned",
        "freed",
        "returned",
    ]


def test_to_give_back_and_to_take_away_are_acts_of_their_own(grown: Grown, one: Holder, two: Holder) -> None:
    """What was released is not given back as lost; what was stolen says why; nobody's frame cannot be released."""
    row = grown.plan("task")
    claim(grown, one)
    with pytest.raises(LeaseLost):
        leases.release(grown.store, row.key, two.id, now=1.0, author="two")
    taken = leases.steal(grown.store, row.key, two, now=1.0, why="it hangs")
    assert taken.fence == 2
    leases.release(grown.store, row.key, two.id, now=1.0, author="two")
    with pytest.raises(FrameStatusRefused, check=hints("nobody has claimed it")):
        leases.release(grown.store, row.key, None, now=1.0, author="page")
    with pytest.raises(LeaseLost, match="nobody has f2 now, with fence 2; your claim has fence 1"):
        pop(grown, row, one)
    assert [event.verb for event in rows.events_of(grown.store, row.key)] == [
        *("plan", "start", "claim", "steal", "claim", "release"),
    ]
    pop(grown, row, None)  # by hand


def test_anybody_may_write_to_what_nobody_holds_until_another_one_has_had_it(
    grown: Grown, one: Holder, two: Holder
) -> None:
    """A client that never claimed a frame is nobody's rival; who gave one back is, once another has had it since."""
    row = grown.plan("task")

    def check(holder: Holder) -> None:
        leases.check(grown.store, grown.again(row), holder.id, now=grown.now)

    for _ in range(2):
        check(one)
        check(two)
        claim(grown, one)
        leases.release(grown.store, row.key, one.id, now=grown.now, author="one")
    claim(grown, two)
    leases.release(grown.store, row.key, two.id, now=grown.now, author="two")
    check(two)
    with pytest.raises(LeaseLost, match="nobody has f2 now, with fence 3; your claim has fence 2"):
        check(one)


def test_no_two_work_on_one_path(grown: Grown, one: Holder, two: Holder) -> None:
    """E-9: a frame that declares a path below one that is taken is not handed out; a hook asks whose a file is."""
    source, module, page = grown.plan("source"), grown.plan("module"), grown.plan("page")
    for row, path in ((source, "/src/"), (module, "/src/a.py"), (page, "/web/page.html")):
        paths.declare(grown.store, row.key, [path])
    claim(grown, one)
    got = claim(grown, two)
    assert got is not None
    assert got.frame == page.id
    with pytest.raises(PathTaken, match=rf"{one.id} works on src/ for {source.id}"):
        claim(grown, two, module)
    tree = grown.root.tree
    taken = paths.taken_by_other(grown.store, tree, "/src/deep/b.py", [two.id])
    assert taken == paths.Taken(source.id, one.id, "/src/")
    assert paths.taken_by_other(grown.store, tree, "/src/deep/b.py", [one.id]) is None
    assert paths.taken_by_other(grown.store, tree, "/srcs/b.py") is None
    leases.free(grown.store, one.id, now=grown.now, why="its process has ended")
    claim(grown, two, module)
    assert claim(grown, one) is None, "what it had lost waits for the path, too"
    leases.check(grown.store, grown.again(source), one.id, now=grown.now)
    assert not leases.is_held(grown.again(source)), "it may end what nobody holds, but not go on with it"
    pop(grown, module, two)
    back = claim(grown, one)
    assert back is not None
    assert (back.frame, back.returned) == (source.id, True)


def test_a_holder_that_lives_and_does_nothing_is_stale(grown: Grown, one: Holder) -> None:
    """A lease that is tied to life alone would never end for an agent that has moved on."""
    row = grown.plan("task")
    claim(grown, one)
    assert leases.stale(grown.store, grown.root.tree, now=grown.now + STALE_SECONDS) == []
    late = grown.now + STALE_SECONDS + 1
    assert leases.stale(grown.store, grown.root.tree, now=late) == [row.key]
    holders.beat(grown.store, one, now=late)
    assert leases.stale(grown.store, grown.root.tree, now=late) == []


def test_a_holder_that_lives_until_a_time_is_ended_by_that_alone(grown: Grown) -> None:
    """It has said itself for how long it may be silent: a lease of an hour is not taken after a quarter of one."""
    grown.plan("task")
    hour = holders.enlist(grown.store, "time", "3600:x", label="by time", worktree="", now=grown.now, seconds=3600.0)
    claim(grown, hour)
    late = grown.now + STALE_SECONDS + 1
    assert leases.stale(grown.store, grown.root.tree, now=late) == []
    assert not hour.is_stale(late)
    assert [one.stale for one in board.held(grown.store, now=late).values()] == [False]


def test_after_a_power_cut_no_old_fence_is_good(grown: Grown, one: Holder) -> None:
    """The last rows may be lost then, and with them the latest claim; a worker elsewhere still has its fence."""
    row, planned = grown.plan("task"), grown.plan("planned")
    claim(grown, one)
    assert leases.fenced_anew(grown.store, now=2.0, why="another boot") == [row.id]
    assert (grown.again(row).fence, grown.again(planned).fence) == (2, 0)
    with pytest.raises(LeaseLost, match="with fence 2; your claim has fence 1"):
        pop(grown, row, None, fence=1)


def test_who_shows_the_same_proof_is_the_same_holder_and_lives_on(grown: Grown) -> None:
    """E-6: its claims stay its own, also when its end was noticed too early; another kind is another holder."""
    first = holders.enlist(grown.store, "time", "60:x", label="x", now=100.0, seconds=60.0)
    assert first.expires_at == 160.0
    holders.gone(grown.store, first.id, now=200.0)
    assert holders.living(grown.store) == []
    again = holders.enlist(grown.store, "time", "60:x", label="y", now=210.0, seconds=60.0)
    assert again == replace(first, beat_at=210.0, expires_at=270.0)
    kinds: tuple[Anchor, ...] = ("process", "connection")
    others = [holders.enlist(grown.store, kind, "60:x", label="z", now=220.0) for kind in kinds]
    assert holders.living(grown.store) == [again, *others]
