"""Runs of sessions that have ended: what is kept of them, and for how long."""

import pytest

from rlm_memory import ended_runs
from rlm_memory.ended_runs import SECONDS_KEPT, EndedRuns
from rlm_memory.store import Store


def _runs(session: int, parent: int | None = None, at: float = 1.0) -> EndedRuns:
    return EndedRuns(session, parent, at, [{"number": session}], {"session": f"s{session}", "turns": ["…"]})


def test_a_record_comes_back_whole(store: Store) -> None:
    """It is compressed on its way; who asks for another session gets none."""
    ended_runs.keep(store, _runs(7, 3))
    assert ended_runs.find(store, 7) == _runs(7, 3)
    assert ended_runs.find(store, 3) is None


def test_to_forget_one_forgets_all_below_it(store: Store) -> None:
    """Children and theirs go, others stay; and whoever watches sees a change."""
    for session, parent in ((1, None), (2, 1), (3, 2), (4, None)):
        ended_runs.keep(store, _runs(session, parent))
    before = ended_runs.latest(store)
    assert ended_runs.forget(store, 1) == 3
    assert ended_runs.lines(store, 10) == [{"number": 4}]
    assert ended_runs.latest(store) != before
    assert ended_runs.forget(store, 1) == 0


def test_old_ones_go_although_no_other_run_comes(store: Store) -> None:
    """Who says that something goes after thirty days may not wait for the next run."""
    ended_runs.keep(store, _runs(1))
    assert ended_runs.expire(store, _runs(1).ended_at + SECONDS_KEPT) == 0
    assert ended_runs.expire(store, _runs(1).ended_at + SECONDS_KEPT + 1) == 1
    assert ended_runs.lines(store, 10) == []


def test_old_ones_go_by_number_size_and_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stay."""
    monkeypatch.setattr(ended_runs, "MOST_ROWS", 2)
    for session in (1, 2, 3):
        ended_runs.keep(store, _runs(session))
    assert [line["number"] for line in ended_runs.lines(store, 10)] == [3, 2]
    ended_runs.keep(store, _runs(4, at=2.0 + SECONDS_KEPT))
    assert [line["number"] for line in ended_runs.lines(store, 10)] == [4]
    monkeypatch.setattr(ended_runs, "MOST_BYTES", 1)
    ended_runs.keep(store, _runs(5, at=2.0 + SECONDS_KEPT))
    assert ended_runs.lines(store, 10) == []
