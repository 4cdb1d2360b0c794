"""What the Python clients send and how they read it, without a daemon."""

import json

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
