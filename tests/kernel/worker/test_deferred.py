"""A placeholder in arithmetic: it is a text, and its answer comes later."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

from rlm_kernel.worker.deferred import DeferredAnswer

SIGNS = [operator.add, operator.sub, operator.truediv, operator.floordiv, operator.pow]


@pytest.mark.parametrize("calculate", SIGNS)
def test_arithmetic_says_what_to_do(calculate: Callable[[Any, Any], Any]) -> None:
    """Python's own message names two types, and not that the answer is still to come."""
    answer = DeferredAnswer(0)
    for sides in ((answer, 1), (1.5, answer)):
        with pytest.raises(
            ValueError, match="'q_000' has no answer yet; calculate with it in a later cell, or ask with"
        ):
            calculate(*sides)
    answer.resolve("42")
    for sides in ((answer, 1), (1.5, answer)):
        with pytest.raises(TypeError, match=r"the answer to query 'q_000' is a text: use int\(\) or float\(\)"):
            calculate(*sides)
    with pytest.raises(TypeError, match="unsupported operand"):
        calculate(answer, object())


def test_an_answer_becomes_a_number() -> None:
    """`int` read the placeholder, also after the answer had come."""
    answer = DeferredAnswer(3)
    with pytest.raises(ValueError, match="'q_003' has no answer yet; convert it in a later cell"):
        int(answer)
    answer.resolve(" 42\n")
    assert (int(answer), float(answer), answer + "!", "is" + answer) == (42, 42.0, " 42\n!", "is 42\n")
    answer.resolve("the model is down", failed=True)
    with pytest.raises(ValueError, match="the model is down"):
        float(answer)


def test_the_other_operand_is_asked_as_a_text_would_ask_it() -> None:
    """Libraries multiply and compare by their own methods, from the right."""

    class Asked:
        def __rmul__(self, other: object) -> str:
            return f"asked with {other}"

    class Later(str):
        __slots__ = ()

        def __str__(self) -> Later:
            return self

        def __gt__(self, other: object) -> bool:
            return True

    answer: Any = DeferredAnswer(1)
    answer.resolve("text")
    assert answer * Asked() == "asked with text"
    assert answer * 2 == 2 * answer == "texttext"
    assert answer < Later("a")
    with pytest.raises(TypeError, match="multiply sequence by non-int"):
        answer * 1.5
