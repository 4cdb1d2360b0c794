"""The budget of a run to the last call, token, cent and second; no model and no kernel is needed to ask it."""

import time

import pytest

from rlm_client import RunLimits
from rlm_client.models.interface import Usage
from rlm_client.rlm.budget import Budget, RunBudgetExceeded

NONE_AT_ALL = {"calls": None, "tokens": None, "cost": None, "seconds": None}


def test_without_a_word_a_run_has_the_limits_of_the_documentation() -> None:
    """docs/cli.md tells the same numbers."""
    assert RunLimits() == RunLimits(turns=30, calls=1000, tokens=None, cost=None, seconds=3600.0, depth=1)


def test_a_budget_begins_whole_and_adds_up_what_answers_use() -> None:
    """Calls when they are made, the rest when the answer is there."""
    budget = Budget(RunLimits())
    assert (budget.calls, budget.input_tokens, budget.output_tokens, budget.cost) == (0, 0, 0, 0.0)
    for usage in (Usage(1, 10, 0.25), Usage(2, 20, 0.5)):
        budget.take_call()
        budget.charge(usage)
    assert (budget.calls, budget.input_tokens, budget.output_tokens, budget.cost) == (2, 3, 30, 0.75)


@pytest.mark.parametrize(
    ("name", "limit", "below", "at", "said"),
    [
        ("calls", 5, {"calls": 4}, {"calls": 5}, "5 calls of a model"),
        ("tokens", 12, {"input_tokens": 4, "output_tokens": 7}, {"input_tokens": 4, "output_tokens": 8}, "12 tokens"),
        ("cost", 0.5, {"cost": 0.499}, {"cost": 0.5}, "0.5 US dollars"),
    ],
)
def test_at_the_limit_no_call_is_made(
    name: str, limit: float, below: dict[str, int], at: dict[str, int], said: str
) -> None:
    """Just below it one is, and is counted; the error says what to raise."""
    limits = RunLimits(**NONE_AT_ALL | {name: limit})  # type: ignore[arg-type]
    budget = Budget(limits, **below)
    budget.take_call()
    assert budget.calls == below.get("calls", 0) + 1
    budget = Budget(limits, **at)
    with pytest.raises(RunBudgetExceeded) as caught:
        budget.take_call()
    assert caught.value.limit == name
    assert str(caught.value) == f"the budget of {said} is used up; raise the limit {name!r} to continue"
    assert budget.calls == at.get("calls", 0)


def test_time_that_is_left_is_never_less_than_none() -> None:
    """Without a limit there is no end of it."""
    assert Budget(RunLimits(seconds=None), began=time.monotonic() - 1e6).seconds_left() is None
    left = Budget(RunLimits(seconds=1000.0), began=time.monotonic() - 100).seconds_left()
    assert left is not None
    assert 0.0 < left <= 900.0
    late = Budget(RunLimits(seconds=1000.0), began=time.monotonic() - 1001)
    assert late.seconds_left() == 0.0
    with pytest.raises(RunBudgetExceeded, match="1000 seconds"):
        late.take_call()
