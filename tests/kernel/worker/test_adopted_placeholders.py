"""Placeholders that a snapshot brings back: fields say which query they are of and what became of it."""

import pytest

from rlm_ipc.kernel_reports import QueryOutcome
from rlm_kernel.worker.queries import CellQueries
from rlm_sandbox.policy.model import Limits, LlmPolicy


class _NoWait:
    """Nothing here waits."""

    def check(self) -> None:
        raise AssertionError

    def wait(self, ids, take) -> None:
        raise AssertionError


def session(next_number: int = 2, **limits: int) -> CellQueries:
    return CellQueries(lambda _told: None, next_number, Limits(**limits), LlmPolicy(), _NoWait())


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(QueryOutcome("[FAILED:q_000] x"), "answered"), (QueryOutcome(error="x"), "failed")],
)
def test_the_same_text_is_an_answer_or_a_failure(outcome, status) -> None:
    """K-23: the outcome says which."""
    queries = session()
    queries.resolve({"q_000": outcome})
    adopted = queries.adopt(0, "[DEFERRED:q_000] LLM query queued", "pending")
    assert (str(adopted), adopted.status) == ("[FAILED:q_000] x", status)


def test_a_failure_that_is_answered_after_all_is_an_answer() -> None:
    """K-23: the later outcome counts."""
    queries = session()
    queries.resolve({"q_000": QueryOutcome(error="x")})
    queries.resolve({"q_000": QueryOutcome("y")})
    assert queries.adopt(0, "", "pending").status == "answered"


@pytest.mark.parametrize("number", ["q_000", "0", None, 0.0, -1, 2])
def test_only_a_number_that_the_session_has_used_is_a_query(number) -> None:
    """K-23: an id that reads like one is a text."""
    adopted = session().adopt(number, "text", "answered")
    assert (type(adopted), adopted) == (str, "text")


def test_a_session_holds_as_many_placeholders_as_it_may_ask() -> None:
    """K-23: those of one query are the same."""
    queries = session(queries=1)
    first = queries.adopt(0, "a", "answered")
    assert queries.adopt(0, "b", "answered") is first
    assert type(queries.adopt(1, "b", "answered")) is str
