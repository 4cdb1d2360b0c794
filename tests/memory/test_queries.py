"""Deferred queries: ids that never repeat, and the state machine."""

import itertools
from dataclasses import replace

import pytest

from rlm_ipc.daemon_rows import AnswerUse
from rlm_memory import budgets, queries, sessions
from rlm_memory.errors import InvalidTransition, UnknownQuery
from rlm_memory.queries import TRANSITIONS, QueryState

A = 1
"""Keys of the sessions that a test opens, in their order."""


def put_in(store, state: QueryState) -> None:
    """Take the query q_000 of session a to a state."""
    queries.record(store, A, [queries.NewQuery("q_000", 0, "why?")], 1.0)
    if state is QueryState.ANSWERED:
        queries.resolve(store, A, "q_000", answer="because", now=2.0)
    elif state is QueryState.FAILED:
        queries.resolve(store, A, "q_000", error="no", now=2.0)
    elif state is QueryState.CANCELLED:
        queries.cancel_pending(store, A, 2.0)


@pytest.mark.parametrize(
    ("current", "wanted"), list(itertools.product(QueryState, (QueryState.ANSWERED, QueryState.FAILED)))
)
def test_the_table_decides_every_settlement(store, session, current, wanted) -> None:
    """K-23: each pair of states resolves or is refused, as the table says."""
    session("a")
    put_in(store, current)
    outcome = {"answer": "x"} if wanted is QueryState.ANSWERED else {"error": "x"}
    if wanted in TRANSITIONS[current]:
        assert queries.resolve(store, A, "q_000", now=3.0, **outcome).state is wanted
    else:
        with pytest.raises(InvalidTransition):
            queries.resolve(store, A, "q_000", now=3.0, **outcome)


def test_ids_of_code_and_of_tools_never_meet_or_repeat(store, session) -> None:
    """K-22: the kernel's base follows what it reported; tools are numbered apart."""
    session("a")
    assert queries.next_in_code(store, "a") == 0
    queries.record(store, A, [queries.NewQuery("q_000", 0, "x")], 1.0)
    queries.record(store, A, [queries.NewQuery("q_001", 1, "y", "flash")], 1.0)
    asked = queries.ask(store, A, ["m", "n"], None, 1.0)
    assert [row.id for row in asked] == ["q_t000", "q_t001"]
    assert queries.next_in_code(store, "a") == 2
    assert [row.id for row in queries.pending(store, A)] == ["q_000", "q_001", "q_t000", "q_t001"]


def test_a_query_reported_twice_is_one_query(store, session) -> None:
    """K-22: the live report and the one at the cell's end are the same query."""
    session("a")
    assert [row.id for row in queries.record(store, A, [queries.NewQuery("q_000", 0, "x")], 1.0)] == ["q_000"]
    assert queries.record(store, A, [queries.NewQuery("q_000", 0, "x")], 1.0) == []
    assert len(queries.of_session(store, A)) == 1


def test_an_id_that_comes_back_with_another_prompt_is_pending_again(store, session) -> None:
    """K-22: the kernel holds the placeholder, so its newest query of an id is the one to answer."""
    session("a")
    queries.record(store, A, [queries.NewQuery("q_000", 0, "x")], 1.0)
    queries.resolve(store, A, "q_000", answer="1", now=1.0)
    (row,) = queries.record(store, A, [queries.NewQuery("q_000", 0, "other")], 2.0)
    assert row == queries.get(store, A, "q_000")
    assert (row.prompt, row.state) == ("other", QueryState.PENDING)


@pytest.mark.parametrize("odd", ["q_", "q_x", "q_t007", "q_999999999999999999999", "q_٣", ""])
def test_an_id_tells_neither_a_number_nor_who_has_asked(store, session, odd) -> None:
    """K-22: it is a key, whatever it holds; the fields count."""
    session("a")
    (row,) = queries.record(store, A, [queries.NewQuery(odd, 4, "x")], 1.0)
    assert (row.asked_by, row.number) == (queries.Asker.CODE, 4)
    assert queries.get(store, A, odd) == row
    assert queries.next_in_code(store, "a") == 5
    assert queries.ask(store, A, ["y"], None, 1.0)[0].id == "q_t000"


@pytest.mark.parametrize(
    ("asked_by", "number", "code", "tool"),
    [
        (queries.Asker.CODE, 999_999_999, 10**9, 0),
        (queries.Asker.TOOL, 999_999_999, 0, 10**9),
        (queries.Asker.CODE, 0, 1, 0),
        (queries.Asker.TOOL, 0, 0, 1),
    ],
)
def test_numbers_go_on_behind_those_that_are_restored(store, session, asked_by, number, code, tool) -> None:
    """K-22: those of code and those of tools, each for itself."""
    session("a")
    session("b")
    (row,) = queries.record(store, A, [queries.NewQuery("q_000", 0, "x")], 1.0)
    queries.restore(store, [replace(row, session=A + 1, asked_by=asked_by, number=number)])
    assert queries.next_in_code(store, "b") == code
    assert queries.ask(store, A + 1, ["y"], None, 1.0)[0].id == f"q_t{tool:03d}"


def test_one_failure_leaves_the_rest_of_the_batch_pending(store, session) -> None:
    """K-23: a failed query fails itself."""
    session("a")
    queries.ask(store, A, ["x", "y"], None, 1.0)
    queries.resolve(store, A, "q_t000", error="refused", now=2.0)
    assert [row.id for row in queries.pending(store, A)] == ["q_t001"]
    assert queries.get(store, A, "q_t000").error == "refused"


def test_an_unknown_query_is_told_by_its_id_alone(store, session) -> None:
    """K-23: an answer lists the pending ones once, and not again for each wrong id."""
    session("a")
    queries.ask(store, A, ["x"], None, 1.0)
    with pytest.raises(UnknownQuery) as caught:
        queries.resolve(store, A, "q_009", answer="x", now=1.0)
    assert caught.value.details() == {"id": "q_009"}
    assert "q_t000" not in str(caught.value)


def test_cancelling_leaves_the_resolved_ones(store, session) -> None:
    """A session's end cancels what still waits, and a lost cell only its own."""
    session("a")
    queries.ask(store, A, ["x", "y", "z"], None, 1.0)
    queries.resolve(store, A, "q_t000", answer="1", now=2.0)
    assert queries.cancel_pending(store, A, 3.0, among=["q_t000", "q_t001"]) == ["q_t001"]
    assert queries.cancel_pending(store, A, 3.0) == ["q_t002"]
    assert queries.get(store, A, "q_t000").state is QueryState.ANSWERED


def test_a_query_tells_what_its_attempts_have_used(store, session) -> None:
    """K-22: tokens of attempts add up, and the model that answered last is named."""
    session("a")
    queries.record(store, A, [queries.NewQuery("q_001", 1, "y", mode="provider", form={"type": "integer"})], 5.0)
    queries.spend(store, A, [AnswerUse("q_001", "m", 10, 5, 0.5)] * 2)
    row = queries.get(store, A, "q_001")
    assert (row.mode, row.form, row.answered_by) == ("provider", {"type": "integer"}, "m")
    assert (row.input_tokens, row.output_tokens) == (20, 10)


def test_what_was_used_adds_up_and_outlives_the_queries(store, session) -> None:
    """K-22: a budget begins whole, only grows, and is not refilled by a query that takes the place of another."""
    row = session("a")
    assert budgets.used(store, A) == budgets.Used()
    budgets.add(store, A, budgets.Used(calls=2, tokens=45, cost=1.5))
    budgets.add(store, A, budgets.Used(calls=1, milliseconds=7))
    queries.record(store, A, [queries.NewQuery("q_000", 0, "x")], 1.0)
    queries.record(store, A, [queries.NewQuery("q_000", 0, "another")], 2.0)
    assert budgets.used(store, A) == budgets.Used(3, 45, 1.5, 7)
    sessions.end(store, A, sessions.How.ENDED, 3.0)
    assert budgets.used(store, session("a").key) == budgets.Used()
    assert row.key == A


def test_what_would_be_new_is_told_before_it_is_noted(store, session) -> None:
    """K-22: so that what goes beyond a limit is never written down."""
    session("a")
    queries.record(store, A, [queries.NewQuery("q_000", 0, "x"), queries.NewQuery("q_001", 1, "y")], 1.0)
    told = [queries.NewQuery("q_000", 0, "x"), queries.NewQuery("q_001", 1, "z"), queries.NewQuery("q_002", 2, "y")]
    assert queries.unknown(store, A, told) == ["q_001", "q_002"]


def test_only_what_is_pending_is_resolved_in_one_step(store, session) -> None:
    """K-23: an answer that comes after the query was cancelled changes nothing."""
    session("a")
    queries.record(store, A, [queries.NewQuery("q_000", 0, "x"), queries.NewQuery("q_001", 1, "y")], 1.0)
    queries.cancel_pending(store, A, 2.0, among=["q_000"])
    resolved = [queries.Resolved(f"q_00{n}", answer="A") for n in range(2)]
    assert queries.resolve_pending(store, A, resolved, now=3.0) == {"q_001"}
    assert [row.state for row in queries.of_session(store, A)] == [QueryState.CANCELLED, QueryState.ANSWERED]


def test_the_form_of_an_answer_comes_back_and_one_without_has_none(store, session) -> None:
    """In whatever way an earlier version wrote that there is none, and whatever type a column has."""
    key = session("a").key
    form = {"type": "object", "required": ["n"]}
    asked = [queries.NewQuery("q_000", 0, "a", form=form, recursive=True), queries.NewQuery("q_001", 1, "b")]
    told = queries.record(store, key, [*asked, queries.NewQuery("q_002", 2, "c")], 1.0)
    store.run("UPDATE query_details SET form = 'null', recursive = NULL WHERE query = 'q_002'")
    rows = queries.of_session(store, key)
    assert rows == told
    assert [(row.form, row.recursive) for row in rows] == [(form, True), (None, False), (None, False)]
    assert {type(row.recursive) for row in rows} == {bool}
