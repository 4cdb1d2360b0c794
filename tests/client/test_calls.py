"""What the Python clients send and how they read it, without a daemon."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rlm_client import calls
from rlm_client.calls import ToolCall


def result(**answer: object) -> dict[str, object]:
    """The result of a tool, as MCP has it."""
    return {"content": [{"type": "text", "text": json.dumps(answer)}]}


def test_a_cell_that_takes_long_is_waited_for_in_its_own_session() -> None:
    """A call may name another session than that of its client, which has no such run."""
    call = ToolCall("eval_code", {"code": "work()", "session": "other"})
    assert call.take(result(status="running", run="r1")) is None
    assert call.params == {"name": "wait", "arguments": {"run": "r1", "session": "other"}}
    assert call.take(result(status="running", run="r1")) is None
    assert call.params == {"name": "wait", "arguments": {"run": "r1", "session": "other"}}
    assert call.take(result(success=True, result="1")) == {"success": True, "result": "1"}


def test_a_cell_of_the_clients_session_is_waited_for_without_a_name() -> None:
    """What was answered beside the cell is part of the whole answer."""
    call = ToolCall("answer_queries", {"answers": ["a"]})
    assert call.take(result(status="running", run="r2", answered=["q_001"], still_pending=[])) is None
    assert call.params == {"name": "wait", "arguments": {"run": "r2"}}
    assert call.take(result(success=True)) == {"success": True, "answered": ["q_001"], "still_pending": []}


@pytest.mark.parametrize(
    "make",
    [
        calls.pipeline,
        lambda text: calls.plan("goal", text),
        lambda text: calls.pop("f1", hand_over=text),
        calls.answer_queries,
        lambda text: calls.scan("log", "error", flags=text),
    ],
    ids=["pipeline", "plan", "pop", "answers", "scan"],
)
def test_a_text_in_place_of_a_list_is_not_taken_for_its_letters(make: Callable[[str], Any]) -> None:
    """Each letter would be a cell that runs, or a goal that is written down."""
    with pytest.raises(TypeError, match=r"\[text\] instead of text"):
        make("case")
