"""What the supervisor enters of queries and of answers that code gives: each bound met exactly, without a kernel."""

import json
from typing import Any

import pytest

from rlm_ipc import worker_protocol
from rlm_ipc.answer_schema import LONGEST_SCHEMA
from rlm_ipc.kernel_reports import AskedQuery, GivenAnswers, QueryOutcome
from rlm_ipc.messages import plain
from rlm_kernel.supervisor.cells.query_book import MOST_CHARACTERS, MOST_GIVEN, QueryBook, at_once, given_in


def query(number: int = 0, **fields: Any) -> dict[str, Any]:
    """A query as a kernel announces it."""
    return {"number": number, "prompt": "p", "model": None, "mode": "deferred", **fields}


def book(limit: int = 1000) -> QueryBook:
    return QueryBook(0, limit, ["deferred"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": "q_000"},
        {"number": True},
        {"number": -1},
        {"prompt": None},
        {"model": 5},
        {"model": "m" * (worker_protocol.MAX_MODEL + 1)},
        {"mode": "blocking"},
        {"mode": ["deferred"]},
        {"schema": {"const": "x" * LONGEST_SCHEMA}},
        {"number": 10**9},
    ],
)
def test_what_is_no_sound_query_is_left_out(wrong: dict[str, Any]) -> None:
    """K-22: the others of the same message are entered."""
    asked = book()
    assert [row.id for row in asked.ask([query() | wrong, query(1)])] == ["q_001"]
    assert asked.next_number == 2


def test_the_longest_of_each_is_entered() -> None:
    """K-22: a prompt, a model, and an id of nine digits."""
    asked = book()
    rows = asked.ask(
        [query(999_999_999, prompt="x" * worker_protocol.MAX_PROMPT, model="m" * worker_protocol.MAX_MODEL)]
    )
    assert len(rows) == 1
    assert asked.next_number == 10**9
    asked.ask([query(5)])
    assert asked.next_number == 10**9


@pytest.mark.parametrize(("told", "recursive"), [(True, [True]), (False, [False]), (None, []), (1, [])])
def test_a_query_is_recursive_only_when_it_says_so(told: object, recursive: list[bool]) -> None:
    """K-22: what puts anything else there is no query."""
    assert [row.recursive for row in book().ask([query(recursive=told)])] == recursive
    assert book().ask([query()])[0].recursive is False


def test_as_many_wait_as_the_limit_says() -> None:
    """K-22: the next is entered when one is answered; an id that was answered is not asked again."""
    asked = book(2)
    assert len(asked.ask([query(0), query(1), query(2)])) == 2
    asked.resolve({"q_000": QueryOutcome("A")})
    assert [row.id for row in asked.ask([query(0), query(2), query(3)])] == ["q_002"]


def test_the_book_is_full_only_after_a_query_beyond_its_characters() -> None:
    """K-22: and no more, once another fits."""
    asked = book()
    assert not asked.full
    most = MOST_CHARACTERS // worker_protocol.MAX_PROMPT
    longest = "x" * worker_protocol.MAX_PROMPT
    assert len(asked.ask([query(number, prompt=longest) for number in range(most)])) == most
    assert not asked.full
    assert asked.ask([query(most)]) == []
    assert asked.full
    asked.withdraw("q_000")
    assert len(asked.ask([query(most)])) == 1
    assert not asked.full


def test_what_is_withdrawn_was_waited_for_or_not() -> None:
    """A rollback tells by it which queries it took back; none is taken back twice."""
    asked = book()
    asked.ask([query()])
    assert [asked.withdraw("q_000"), asked.withdraw("q_000"), asked.withdraw("q_009")] == [True, False, False]


def test_a_session_that_may_ask_nothing_still_has_a_rate() -> None:
    """One message of its kernel is heard without a rest, as of any other."""
    assert book(0).rest([{}]) == 0.0


def test_a_cell_waits_once_for_what_it_has_asked_itself() -> None:
    """K-18: a cell whose clock stands for a query cannot make it stand for that one again."""
    asked = book()
    rows = [row.id for row in asked.ask([query(0), query(1)])]
    assert asked.claim(["q_000", "q_009"], rows) == {"q_000"}
    assert asked.claim([], rows) == set()
    assert asked.claim(["q_000", "q_001"], rows) == {"q_001"}
    assert asked.claim(["q_000", "q_001"], rows) == set()


def row(prompt: str, schema: dict[str, Any] | None = None) -> AskedQuery:
    """A query that was entered."""
    return AskedQuery(0, prompt, None, "deferred", schema, recursive=False)


@pytest.mark.parametrize(
    ("lengths", "parts"),
    [([-1, 1, 0], [3]), ([-1, 2, 0], [2, 1]), ([0, 0, 1, 0], [3, 1]), ([1, 0], [1, 1]), ([1, 1], [1, 1])],
)
def test_a_message_ends_behind_the_query_that_fills_it(lengths: list[int], parts: list[int]) -> None:
    """The first of ``lengths`` is of the characters that a message may have: one more of them all ends it."""
    sizes = [worker_protocol.PROMPTS_AT_ONCE + lengths[0], *lengths[1:]]
    assert [len(part) for part in at_once([row("x" * size) for size in sizes])] == parts


def test_a_schema_counts_as_the_longest_one() -> None:
    """Nobody measures it again."""
    few = worker_protocol.PROMPTS_AT_ONCE // LONGEST_SCHEMA + 1
    rows = [row("", {"type": "integer"}) for _ in range(few + 1)]
    assert [len(part) for part in at_once(rows)] == [few, 1]


@pytest.mark.parametrize("given", [None, GivenAnswers(), GivenAnswers("A"), GivenAnswers(5)])
def test_what_tells_no_answers_gives_none(given: GivenAnswers | None) -> None:
    """K-23: a kernel tells what it likes."""
    assert given_in(given) is None


def test_answers_and_problems_are_told_on() -> None:
    """K-23: a problem takes the place of answers, and is cut."""
    assert given_in(GivenAnswers(["A"])) == GivenAnswers(["A"])
    assert given_in(GivenAnswers({"q_000": "A"}, assigned=True)) == GivenAnswers({"q_000": "A"}, assigned=True)
    long = given_in(GivenAnswers(["A"], "x" * 301))
    assert long == GivenAnswers(problem="x" * 300)


def test_answers_of_the_greatest_length_are_taken_and_one_character_more_is_not() -> None:
    """K-23: the supervisor neither keeps nor sends on what is longer."""
    assert MOST_GIVEN == 134_217_728
    around = len(json.dumps(plain(GivenAnswers([""]))))
    answers = ["x" * (MOST_GIVEN - around)]
    assert given_in(GivenAnswers(answers)) is not None
    assert given_in(GivenAnswers([answers[0] + "x"])) is None
