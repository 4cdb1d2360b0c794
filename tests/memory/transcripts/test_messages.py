"""What messages hold, and how they read as text."""

from typing import Any

import pytest

from rlm_memory.transcripts import masking
from rlm_memory.transcripts.messages import as_text


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ({"name": "eval_code", "arguments": {"code": "1 + 1"}}, "1 + 1"),
        ({"name": "eval_code", "arguments": '{"code": "1 + 1"}'}, "1 + 1"),
        ({"name": "eval_code", "arguments": {"code": "1", "session": "a"}}, "eval_code(code='1', session='a')"),
        ({"name": "peek", "arguments": {"code": "1"}}, "peek(code='1')"),
        ({"name": "peek", "arguments": '["log"]'}, 'peek(["log"])'),
        ({"name": "peek", "arguments": "{damaged"}, "peek({damaged)"),
    ],
)
def test_a_call_reads_as_its_code_or_as_its_tool_with_arguments(function: dict[str, Any], text: str) -> None:
    """Only a call of eval_code with nothing but code is code; arguments that are no object stand as they came."""
    message = {"role": "assistant", "content": "So:", "tool_calls": [{"id": "1", "function": function}]}
    assert as_text(message) == f"assistant: So:\n{text}"


@pytest.mark.parametrize(("kind", "masked"), [("tool_result", True), ("document", False)])
def test_only_blocks_of_results_are_outputs(kind: str, masked: bool) -> None:
    """Another block may have a field of the same name, and is what somebody said."""
    message = {"role": "user", "content": [{"type": kind, "content": "x" * 5000}]}
    assert bool(masking.outputs_at_least(message, 1000)) is masked
