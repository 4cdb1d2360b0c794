"""What a Jupyter client can send leads through the walls, too; a stock kernel is the control."""

import pytest
from escape_corpus import Case, load
from escape_kernels import Column, try_messages

CASES = [case for cases in load().values() for case in cases if case.kind == "message"]


@pytest.fixture(scope="module")
def tried(module_isolation: object) -> dict[str, Column]:
    """The outcome of every case on every wall: three kernels' worth of messages."""
    return try_messages(CASES)


@pytest.mark.timeout(300)
def test_both_walls_hold_and_a_stock_kernel_does_not(tried: dict[str, Column]) -> None:
    """K-28: every request leads through the compiler and the audit hook; behind it is a helper process."""
    for wall, column in tried.items():
        outcomes = [outcome for found in column.values() for outcome in found]
        wrong = [str(outcome) for outcome in outcomes if outcome.escaped != (wall == "no wall")]
        assert wrong == [], wall
        assert len(outcomes) > len(CASES) / 2


def test_a_case_that_needs_a_request_names_it() -> None:
    """Content without a request goes into the message of the cell itself, so it must be a field of it."""
    asked: list[Case] = [case for case in CASES if case.content and not case.request]
    assert all(set(case.content) <= {"user_expressions"} for case in asked)
