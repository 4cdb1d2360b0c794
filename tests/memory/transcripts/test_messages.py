"""What messages hold, and how they read as text."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig, masking
from rlm_memory.transcripts.messages import Message, as_text


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


OUTPUT = "x" * 5000
TRANSCRIPTS: dict[str, list[dict[str, Any]]] = {
    "Claude Code": [
        {"role": "user", "content": [{"type": "text", "text": "list"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": OUTPUT}]},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        {"role": "user", "content": "more"},
    ],
    "Codex": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list"}]},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": OUTPUT},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ],
    "opencode": [
        {"info": {"role": "user"}, "parts": [{"type": "text", "text": "list"}]},
        {"info": {"role": "assistant"}, "parts": [{"type": "tool", "callID": "c1", "state": {"output": OUTPUT}}]},
    ],
    "chat completions": [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "list"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "ls", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": OUTPUT},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "more"},
    ],
}
DAMAGE: list[Any] = [
    None,
    True,
    1.5,
    "",
    "text",
    [],
    [1],
    ["s"],
    {},
    {"a": 1},
    [{}],
    [{"type": "tool_use"}],
    [{"type": "tool_result"}],
]
"""A value of every JSON type, and blocks that have nothing but their type."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, the innermost too."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def damaged(whole: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Copies of a transcript with each kind of damage at each place."""
    for *above, last in places(whole):
        for value in DAMAGE:
            copied: Any = copy.deepcopy(whole)
            at = copied
            for key in above:
                at = at[key]
            at[last] = copy.deepcopy(value)
            yield copied


@pytest.mark.parametrize("client", TRANSCRIPTS)
@pytest.mark.parametrize("strategy", ["truncate", "summarize", "mask"])
def test_a_damaged_transcript_is_cut_like_any_other_or_named(client: str, strategy: Any) -> None:
    """What is no message is refused with its number; fields with anything in them are kept as they are."""
    config = PruningConfig(max_tokens=60, retained_turns=1, strategy=strategy)
    for transcript in damaged(TRANSCRIPTS[client]):
        sound = all(isinstance(item, dict) for item in transcript)
        pruner, context = ContextPruner(config), ContextManager(ContextPruner(config))
        if not sound:
            for refuses in (pruner.prune, pruner.segment, pruner.estimate_tokens):
                with pytest.raises(ValueError, match=r"item \d is a \w+, not a message; give a dictionary with role"):
                    refuses(transcript)
            with pytest.raises(ValueError, match=", not a message;"):
                ContextManager(system_prompts=transcript)
            with pytest.raises(ValueError, match=", not a message;"):
                add(context, transcript)
            continue
        pruner.segment(transcript)
        assert all(
            message in transcript or "characters of output" in str(message) for message in shown(pruner, transcript)
        )
        add(context, transcript)
        context.get_active_context()
        assert sorted(map(str, context.rebuild())) == sorted(map(str, transcript))


def shown(pruner: ContextPruner, transcript: list[Message]) -> list[Message]:
    """What is shown of a transcript, but for a summary."""
    return [message for message in pruner.prune(transcript) if "Summar" not in str(message.get("content"))]


def add(context: ContextManager, transcript: list[Message]) -> None:
    """Add a transcript as an agent does, which folds before each call of its model."""
    for message in transcript:
        context.add_message(message)
        context.fold_if_full()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("past_summaries", 1.5),
        ("past_summaries", [1]),
        ("summary", {"a": 1}),
        ("pruner_config", {"opening_turns": 1.5}),
    ],
)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(field: str, value: Any) -> None:
    """These were found when the conversation had been taken over in part."""
    context = ContextManager()
    context.add_turn("one", "two")
    before = context.snapshot()
    with pytest.raises(ValueError, match="not a snapshot of a conversation"):
        context.load_snapshot({**before, field: value})
    assert context.snapshot() == before
