"""What the loop does next, as a table: rows in, a decision out, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from rlm_ipc.chain_requests import AgentRun, Failure, HandedOff, RunKind, TaskLine, Verdict
from rlm_mcp.loop.options import Options
from rlm_mcp.loop.planner import (
    MOST_CRASHES,
    MOST_SILENT,
    Complete,
    End,
    Leave,
    Run,
    after,
    batch_outcome,
    below,
    due,
    in_the_way,
    judge,
    links,
    told,
)

OPTIONS = Options(("agent",))
LINE = TaskLine(
    id="f3",
    parent="f2",
    kind="task",
    type="feature",
    title="a",
    status="in_progress",
    held=True,
    process="boot:1:2",
    fence=1,
    open_children=0,
    badly=0,
    after=(),
    description="",
    acceptance="",
    paths=(),
    progress={},
    progress_at=None,
    handoff=None,
)
RUN = AgentRun(1, "f3", RunKind.FIRST, 100.0, fence=1)
PASS = HandedOff("PASS", "It works.", (), (), 101.0)
TESTS = Failure("pytest", 1, "pytest", 2, 1, ("test_a",), "FAILED test_a")


def line(**changes: Any) -> TaskLine:
    """Return a task as the daemon shows it."""
    return replace(LINE, **changes)


def ran(*verdicts: Verdict | None, kinds: dict[int, RunKind] | None = None) -> list[AgentRun]:
    """Return runs with those verdicts; one that was faulty has a failure."""
    failure: dict[Verdict | None, Failure] = {Verdict.FAULTY: TESTS}
    return [
        replace(
            RUN, number=number, kind=(kinds or {}).get(number, RunKind.FIRST), verdict=said, failure=failure.get(said)
        )
        for number, said in enumerate(verdicts, 1)
    ]


@pytest.mark.parametrize(
    ("status", "changes", "tested", "verdict"),
    [
        (0, {"handoff": PASS}, False, Verdict.PASSED),
        (0, {"handoff": replace(PASS, status="FAIL")}, False, Verdict.FAILED),
        (0, {"handoff": replace(PASS, status="BLOCKED")}, True, Verdict.BLOCKED),
        (1, {"handoff": PASS}, False, Verdict.PASSED),  # it has said what counts before it stumbled
        (None, {"handoff": PASS}, False, Verdict.PASSED),
        (0, {"handoff": replace(PASS, at=99.0)}, False, Verdict.PARTIAL),  # that of the one before
        (0, {"status": "completed", "held": False}, False, Verdict.PASSED),
        (0, {"status": "failed", "held": False}, False, Verdict.FAILED),
        (0, {"status": "invalidated", "held": False}, False, Verdict.LOST),
        (0, {"fence": 2}, False, Verdict.LOST),
        (0, {"fence": 2, "handoff": PASS}, False, Verdict.LOST),
        (-1, {}, True, Verdict.CRASHED),
        (None, {"held": False, "status": "ready"}, True, Verdict.CRASHED),
        (1, {}, False, Verdict.FAULTY),
        (0, {}, False, Verdict.PARTIAL),
        (0, {}, True, Verdict.PASSED),  # it has said nothing: the tests decide
        (0, {"held": False}, True, Verdict.PASSED),  # its lease ran out; it gave nothing back
        (0, {"held": False, "status": "ready"}, True, Verdict.PARTIAL),  # it has given it back
        (0, {"progress": {"next_step": "x"}, "progress_at": 101.0}, True, Verdict.PARTIAL),
        (0, {"progress": {"next_step": "x"}, "progress_at": 99.0}, True, Verdict.PASSED),
    ],
)
def test_what_has_become_of_an_agent_is_told_by_its_rows(
    status: int | None, changes: dict[str, Any], tested: bool, verdict: Verdict
) -> None:
    """E-12: a clean hand-off, a hand-over to the next agent and a crash are three things, whatever the exit status."""
    assert judge(RUN, status, line(**changes), tested=tested) is verdict


def test_each_verdict_leads_to_one_step() -> None:
    """E-12: the table of the planner, with chains left and without."""
    assert after([], LINE, OPTIONS, 10) == Run(RunKind.FIRST)
    assert after(ran(Verdict.FAULTY, Verdict.PASSED), LINE, OPTIONS, 10) == Complete()  # the last one counts
    failed = line(handoff=replace(PASS, status="FAIL", summary="No way."))
    assert after(ran(Verdict.FAILED), failed, OPTIONS, 10) == End("failed", "No way.")
    assert after(ran(Verdict.BLOCKED), failed, OPTIONS, 10) == End("blocked", "No way.")
    assert after(ran(Verdict.PARTIAL), LINE, OPTIONS, 1) == Run(RunKind.CONTINUED)
    assert after(ran(Verdict.PARTIAL), LINE, OPTIONS, 0) == Leave(limit=True)
    assert after(ran(Verdict.CRASHED), LINE, OPTIONS, 1) == Run(RunKind.RECOVERED)
    assert after(ran(None), LINE, OPTIONS, 1) == Run(RunKind.RECOVERED)
    assert after(ran(Verdict.CRASHED), LINE, OPTIONS, 0) == Leave(limit=True)
    assert after(ran(Verdict.LOST), LINE, OPTIONS, 10) == Leave()
    assert after(ran(Verdict.PARTIAL), line(status="completed"), OPTIONS, 10) == Leave()


def test_what_kills_its_agents_or_silences_them_is_blocked() -> None:
    """E-12: no task is begun for ever."""
    crashed = ran(*[Verdict.CRASHED] * MOST_CRASHES)
    assert after(crashed, LINE, OPTIONS, 10) == End("blocked", "3 agents have died over it")
    silent = ran(*[Verdict.PARTIAL] * MOST_SILENT)
    assert after(silent, LINE, OPTIONS, 10) == End(
        "blocked", "3 agents have ended without a hand-off or progress notes"
    )
    assert after(silent, line(progress={"next_step": "x"}, progress_at=101.0), OPTIONS, 10) == Run(RunKind.CONTINUED)


def test_a_failure_is_fixed_three_times_at_most_and_never_that_of_a_spike() -> None:
    """E-14: then it is blocked with what was learned; auto_fix can be off; a spike's failure is its result."""
    kinds = dict.fromkeys((2, 3, 4), RunKind.FIX)
    for tries in (1, 2, 3):
        assert after(ran(*[Verdict.FAULTY] * tries, kinds=kinds), LINE, OPTIONS, 0) == Run(RunKind.FIX)
    ended = after(ran(*[Verdict.FAULTY] * 4, kinds=kinds), LINE, OPTIONS, 10)
    assert isinstance(ended, End)
    assert (ended.status, ended.why) == ("blocked", "1 tests failed (pytest): test_a, after 3 fixes")
    assert ended.learned == tuple(f"try {number}: 1 tests failed (pytest): test_a" for number in (1, 2, 3, 4))
    off = replace(OPTIONS, fix=False)
    assert after(ran(Verdict.FAULTY), LINE, off, 10) == End(
        "blocked", "1 tests failed (pytest): test_a", ("try 1: 1 tests failed (pytest): test_a",)
    )
    spike = after(ran(Verdict.CRASHED, Verdict.FAULTY), line(type="spike"), OPTIONS, 10)
    assert spike == End("failed", "1 tests failed (pytest): test_a", ("test_a",))
    many, bare = replace(TESTS, failed=4, failing=tuple("abcd")), replace(TESTS, runner="", output="all\nof it\n\n")
    assert told(many) == "4 tests failed (pytest): a, b, c"
    assert (told(bare), told(replace(bare, output=""))) == ("pytest ended with 1: of it", "pytest ended with 1")


def test_only_who_goes_on_from_another_counts_as_a_link() -> None:
    """E-12: fixes have a limit of their own, and a task's first agent is none of the chain's links."""
    kinds = {1: RunKind.FIRST, 2: RunKind.CONTINUED, 3: RunKind.RECOVERED, 4: RunKind.FIX}
    assert links(ran(*[Verdict.PARTIAL] * 4, kinds=kinds)) == 2


def test_a_story_is_due_when_all_of_it_is_done_and_nothing_of_it_is_leased() -> None:
    """E-3, E-12: the lowest first; one with an open, failed or leased frame below is not, or with none."""
    epic = line(id="f1", parent="f0", kind="epic", open_children=1, held=False)
    story = line(id="f2", parent="f1", kind="story", held=False)
    task = line(id="f3", status="completed", held=False)
    found = due([epic, story, task])
    assert found is not None
    assert found.id == "f2"
    assert due([replace(epic, open_children=0)]) is None
    assert due([epic, replace(story, badly=1), task]) is None
    assert due([epic, replace(story, open_children=1), task]) is None
    assert due([epic, story, replace(task, held=True)]) is None
    assert due([epic, replace(story, status="completed"), task]) is None
    closed = [replace(epic, open_children=0), replace(story, status="completed"), task]
    found = due(closed)
    assert found is not None
    assert found.id == "f1"
    assert [one.id for one in below(closed, "f1")] == ["f2", "f3"]


def test_what_is_in_the_way_is_named_with_what_waits_for_it() -> None:
    """E-12: a loop that ends says why, never only that the queue is empty."""
    failed = line(id="f3", status="failed", held=False)
    waits = line(id="f4", status="waiting", held=False, after=("f3",))
    assert in_the_way([failed, waits]) == ["f3 failed; tasks waiting for it: 1"]
    assert in_the_way([waits]) == ["f4 not done"]
    assert in_the_way([line(status="completed", held=False)]) == []


@pytest.mark.parametrize(
    ("verdicts", "ends", "outcome"),
    [
        ([Verdict.PASSED, Verdict.PASSED], ["completed", "completed"], "completed"),
        ([Verdict.FAULTY, Verdict.PASSED], ["completed"], "completed"),
        ([Verdict.CRASHED, Verdict.PASSED], ["completed"], "interrupted"),
        ([Verdict.PARTIAL], ["completed"], "interrupted"),
        ([None], ["in_progress"], "interrupted"),
        ([Verdict.FAILED], ["failed", "completed"], "failed"),
        ([Verdict.FAULTY], ["blocked", "completed"], "blocked"),
    ],
)
def test_a_batch_went_as_its_worst_task(verdicts: list[Verdict | None], ends: list[str], outcome: str) -> None:
    """E-11: by this the next batch is larger, smaller or as large."""
    assert batch_outcome(ran(*verdicts), ends) == outcome
