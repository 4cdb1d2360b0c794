"""The documented behaviours of a context manager and its pruner: forty-eight cases, numbered as they are listed below.

1-2 a turn; 3-16 the manager; 17-29 its compression; 30-31 `compress`; 32-33 the configuration; 34-41 the pruner;
42-43 pruning as a whole; 44-48 `segment`.
"""

import json

import anyio
import pytest

from rlm_memory.transcripts import ContextManager, ContextPruner, ImportanceLevel, PruningConfig, Turn
from rlm_memory.transcripts.messages import Message


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def _conversation(turns: int, retained: int = 10, *, system: str | None = None) -> ContextManager:
    context = ContextManager(ContextPruner(PruningConfig(retained_turns=retained)))
    if system is not None:
        context.add_system_message(system)
    for number in range(turns):
        context.add_turn(f"User {number}", f"Assistant {number}")
    return context


def _texts(messages: list[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages]


def test_01_a_turn_holds_its_messages() -> None:
    """P-3: what was given is there, and nothing is made up."""
    turn = Turn(user_message=_user("Hello"), assistant_message=_assistant("Hi!"))
    assert (turn.user_message, turn.assistant_message, turn.metadata) == (_user("Hello"), _assistant("Hi!"), {})


def test_02_a_turn_becomes_a_dictionary() -> None:
    """P-8: with both messages and its time, as JSON can hold it."""
    data = Turn(_user("Test"), _assistant("Result")).to_dict()
    assert (data["user"]["content"], data["assistant"]["content"]) == ("Test", "Result")
    assert json.loads(json.dumps(data)) == data
    assert Turn.from_dict(data).to_dict() == data


def test_03_a_new_manager_is_empty() -> None:
    """P-3: no turns, and none counted."""
    context = ContextManager()
    assert (context.turn_count, context.turns, context.get_active_context("full")) == (0, [], [])


def test_04_a_system_message_is_a_prompt() -> None:
    """P-3: it is no turn."""
    context = ContextManager()
    context.add_system_message("You are careful.", name="policy")
    assert context.system_prompts == [{**_system("You are careful."), "name": "policy"}]
    assert context.turns == []


def test_05_a_user_message_begins_a_turn() -> None:
    """P-3: the turn is there before it has a reply, and does not count yet."""
    context = ContextManager()
    context.add_user_message("Hello, world!")
    assert context.turns[0].user_message == _user("Hello, world!")
    assert context.turn_count == 0


def test_06_the_reply_completes_the_turn() -> None:
    """P-3: a second reply to the same turn takes the place of the first, and counts once."""
    context = ContextManager()
    context.add_user_message("Question?")
    for answer in ("Ans", "Answer!"):
        context.update_last_assistant(answer)
    assert context.turns[0].assistant_message == _assistant("Answer!")
    assert context.turn_count == 1


def test_07_a_whole_turn_is_added_at_once() -> None:
    """P-3: both messages, one turn."""
    context = _conversation(1)
    assert context.turns[0].messages == [_user("User 0"), _assistant("Assistant 0")]
    assert context.turn_count == 1


def test_08_several_turns_are_counted() -> None:
    """P-3: in their order."""
    context = _conversation(2)
    assert [turn.user_message for turn in context.turns] == [_user("User 0"), _user("User 1")]
    assert context.turn_count == 2


def test_09_the_pruned_context_is_what_fits() -> None:
    """P-3: within the budget that is everything; over it the system prompt and the last turn."""
    context = _conversation(3, system="System")
    assert _texts(context.get_active_context()) == [
        "System",
        *(f"{who} {n}" for n in range(3) for who in ("User", "Assistant")),
    ]
    context.pruner = ContextPruner(PruningConfig(max_tokens=6))
    assert _texts(context.get_active_context(strategy="pruned")) == ["System", "User 2", "Assistant 2"]


def test_10_the_recent_context_has_the_last_turns() -> None:
    """P-3: the system prompt and as many turns as are retained."""
    context = _conversation(10, 3, system="System")
    recent = context.get_active_context(strategy="recent")
    assert recent[0] == _system("System")
    assert _texts(recent[1:]) == [f"{who} {n}" for n in (7, 8, 9) for who in ("User", "Assistant")]


def test_11_the_full_context_has_all_messages() -> None:
    """P-3: whatever the budget is; there is no fourth view."""
    context = _conversation(1, system="System")
    context.pruner = ContextPruner(PruningConfig(max_tokens=0))
    assert context.get_active_context(strategy="full") == [
        _system("System"),
        _user("User 0"),
        _assistant("Assistant 0"),
    ]
    with pytest.raises(ValueError, match="pruned, full, recent"):
        context.get_active_context("whole")  # type: ignore[arg-type]


def test_12_clear_forgets_everything() -> None:
    """P-3: turns, prompts, count, and the record of folded turns."""
    context = _conversation(5, 1, system="System")
    context.prune_with_summary("before")
    context.clear()
    assert (context.turns, context.turn_count, context.folded, context.rebuild()) == ([], 0, [], [])


def test_13_a_snapshot_is_restored() -> None:
    """P-8: through JSON, and the copy's snapshot is the same."""
    context = _conversation(1, system="Important")
    other = ContextManager()
    other.load_snapshot(json.loads(json.dumps(context.snapshot())))
    assert (other.turn_count, other.system_prompts) == (1, [_system("Important")])
    assert other.turns[0].user_message == _user("User 0")
    assert other.snapshot() == context.snapshot()


def test_14_stats_count_what_a_model_is_shown() -> None:
    """P-4, P-9: the documented keys, and the label of the token count."""
    stats = _conversation(1, 7, system="System").stats()
    assert (stats["turn_count"], stats["system_messages"], stats["total_messages"]) == (1, 1, 3)
    assert stats["estimated_tokens"] == len("SystemUser 0Assistant 0") // 4
    assert (stats["has_summary"], stats["counted"]) == (False, "estimated")
    assert (stats["pruner_config"]["max_tokens"], stats["pruner_config"]["retained_turns"]) == (128_000, 7)


def test_15_a_reply_needs_a_turn() -> None:
    """P-3: the error says what to call first."""
    with pytest.raises(RuntimeError, match=r"No active turn.*add_user_message"):
        ContextManager().update_last_assistant("Answer")


def test_16_pruning_with_a_summary_keeps_the_last_turns() -> None:
    """P-5: the number of turns that went comes back, and the summary stands before those that stay."""
    context = _conversation(10, 2)
    assert context.prune_with_summary("Various topics") == 8
    assert _texts(context.get_active_context("full")) == [
        "[Context Summary]\nVarious topics", "User 8", "Assistant 8", "User 9", "Assistant 9"
    ]  # fmt: skip
    assert context.summary == "Various topics"


def test_17_a_new_manager_has_no_summary() -> None:
    """P-6: None, which is not an empty one."""
    assert ContextManager().summary is None


def test_18_segment_divides_the_conversation() -> None:
    """P-6: system, what would be summarized, the retained turns."""
    system, older, recent = _conversation(5, 2, system="System prompt").segment()
    assert system == [_system("System prompt")]
    assert _texts(older) == [f"{who} {n}" for n in (0, 1, 2) for who in ("User", "Assistant")]
    assert _texts(recent) == [f"{who} {n}" for n in (3, 4) for who in ("User", "Assistant")]


def test_19_an_empty_conversation_has_empty_segments() -> None:
    """P-6: three lists."""
    assert ContextManager().segment() == ([], [], [])


def test_20_the_simple_summary_has_the_heads_of_messages() -> None:
    """P-7: a header with the number of messages, then each with its role; a long one is cut at 300 characters."""
    messages = [_user("a long question about it"), _assistant("x" * 301), _user("y" * 300)]
    assert ContextManager()._simple_summarize(messages) == "\n".join(
        [
            "Summarized 3 messages:",
            "[user]: a long question about it",
            f"[assistant]: {'x' * 300}...",
            f"[user]: {'y' * 300}",
        ]
    )


def test_21_the_simple_summary_of_nothing_is_empty() -> None:
    """P-7: not even a header."""
    assert ContextManager()._simple_summarize([]) == ""


def test_22_the_simple_summary_skips_short_messages() -> None:
    """P-7: below twenty characters; the last ten of the others stay."""
    messages = [_user("z" * 19), *(_user(f"{number:020}") for number in range(12))]
    lines = ContextManager()._simple_summarize(messages).split("\n")
    assert lines == ["Summarized 13 messages:", *(f"[user]: {number:020}" for number in range(2, 12))]


def test_23_messages_become_the_steps_of_a_trajectory() -> None:
    """P-7: a user's message is a goal, a reply a decision; both are cut."""
    goal, decision, last = ContextManager()._messages_to_trajectory(
        [_user("u" * 201), _assistant("a" * 501), _user("two")]
    )
    assert (goal, last) == ({"type": "goal", "content": "u" * 200}, {"type": "goal", "content": "two"})
    assert (decision["type"], decision["title"], decision["choice"]) == ("decision", "Step 1", "a" * 500)


def test_24_the_summary_is_taken_out_of_markdown() -> None:
    """P-7: the summary's section and the decisions' headings, in one line; nothing of other sections."""
    sections = [
        "# Session\nGoal: none",
        "## Summary\n\nIt works.\nMostly.",
        "## Decision Path\n\n### 1. First\nWhy",
        "## X\nno",
    ]
    markdown = "\n\n".join(sections)
    assert ContextManager()._extract_summary_content(markdown) == "It works. Mostly.   - 1. First"
    assert len(ContextManager()._extract_summary_content("## Summary\n" + "w" * 3000)) == 2000


def test_25_applying_a_compression_puts_the_summary_in_place() -> None:
    """P-7: after the system prompts, once, before the recent turns, which keep their times."""
    context = _conversation(5, 2, system="System prompt")
    context.summary = "What was"
    recent = context.turns[3:]
    context._apply_compression(context.system_prompts[:1], context.get_active_context("full")[-4:])
    assert [message.get("_is_summary", False) for message in context.system_prompts] == [False, True]
    assert context.turns == recent
    with pytest.raises(ValueError, match="whole turns"):
        context._apply_compression(context.system_prompts, context.get_active_context("full")[-1:])


def test_26_clear_forgets_the_summary() -> None:
    """P-6: there is nothing left that it could be about."""
    context = _conversation(1, system="System")
    context.summary = "Some"
    context.clear()
    assert context.summary is None


def test_27_a_snapshot_has_the_summary() -> None:
    """P-8: beside the messages."""
    context = _conversation(1)
    context.summary = "Test summary"
    assert context.snapshot()["summary"] == "Test summary"


def test_28_a_snapshot_of_another_writer_is_loaded() -> None:
    """P-8: with the documented keys alone; an empty reply is an unanswered turn, and turns it lacks still count."""
    context = ContextManager()
    moment = "2026-01-01T00:00:00+00:00"
    context.load_snapshot(
        {
            "system_prompts": [_system("System")],
            "turns": [{"user": _user("open"), "assistant": _assistant(""), "timestamp": moment, "metadata": {}}],
            "turn_count": 7,
            "summary": "Restored summary",
            "pruner_config": {"max_tokens": 1000, "retained_turns": 4},
        }
    )
    assert (context.summary, context.turn_count) == ("Restored summary", 7)
    assert (context.pruner.config.max_tokens, context.pruner.config.retained_turns) == (1000, 4)
    assert context.turns[0].assistant_message is None


def test_29_stats_tell_of_a_summary() -> None:
    """P-4: it counts as a system message."""
    context = _conversation(1, system="System")
    assert context.stats()["has_summary"] is False
    context.summary = "Test summary"
    assert (context.stats()["has_summary"], context.stats()["system_messages"]) == (True, 2)


def test_30_compress_does_nothing_when_all_is_recent() -> None:
    """P-6: it says so, and no summary appears."""
    context = _conversation(1, 2, system="System")
    assert anyio.run(context.compress) is False
    assert context.summary is None


def test_31_compress_puts_a_summary_in_place_of_old_turns() -> None:
    """P-6: twenty turns are twenty messages to summarize and twenty recent ones."""
    context = _conversation(20, system="System")
    _, older, recent = context.segment()
    assert (len(older), len(recent)) == (20, 20)
    assert anyio.run(context.compress) is True
    shown = context.get_active_context()
    assert _texts(shown[:2]) == ["System", "[Context Summary]\nSummarized 20 messages:\n"]
    assert shown[2:] == recent


def test_32_the_defaults_are_the_documented_ones() -> None:
    """P-1: a window of 128,000 tokens, ten turns, truncation."""
    config = PruningConfig()
    assert (config.max_tokens, config.retained_turns, config.strategy) == (128_000, 10, "truncate")
    assert (config.preserve_system, config.preserve_recent) == (True, True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", -1), ("retained_turns", -1), ("opening_turns", -1), ("strategy", "forget"), ("fold_to", 0.0),
        ("summary_share", 1.1), ("mask_from", 199),
    ],
)  # fmt: skip
def test_33_every_field_can_be_set_within_its_bounds(field: str, value: object) -> None:
    """P-1: what makes no sense is refused by name."""
    config = PruningConfig(max_tokens=64_000, retained_turns=0, preserve_system=False, strategy="summarize")
    assert (config.max_tokens, config.retained_turns, config.preserve_system) == (64_000, 0, False)
    with pytest.raises(ValueError, match=str(value) if field == "strategy" else field):
        PruningConfig(**{field: value})  # type: ignore[arg-type]


def test_34_nothing_is_pruned_to_nothing() -> None:
    """P-2: an empty list stays one, whatever the budget."""
    assert ContextPruner(PruningConfig(max_tokens=0)).prune([]) == []


def test_35_tokens_are_estimated_from_characters() -> None:
    """P-9: all characters together, a fourth of them; what tools are told counts too, and no content is none."""
    pruner = ContextPruner()
    assert pruner.estimate_tokens([_user("a" * 7), _assistant("b" * 8)]) == 3
    assert pruner.estimate_tokens([_user("a" * 3)]) == 0
    assert pruner.estimate_tokens([{"role": "assistant", "content": None}]) == 0
    assert pruner.estimate_tokens([{"role": "assistant", "content": None, "tool_calls": [{"id": "c" * 100}]}]) > 25


def test_36_a_system_message_is_critical() -> None:
    """P-2: who the model is. There are four levels, in this order."""
    assert [level.value for level in ImportanceLevel] == [3, 2, 1, 0]
    assert ContextPruner().classify_importance(_system("You")) is ImportanceLevel.CRITICAL


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "", "tool_use": {"name": "test"}},
        {"role": "tool", "tool_call_id": "1", "content": "found"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}]},
        _assistant("Decision: we take it"),
    ],
)
def test_37_what_tools_did_and_what_was_decided_is_of_high_importance(message: dict[str, object]) -> None:
    """P-2: in every shape that the protocols have."""
    assert ContextPruner().classify_importance(message) is ImportanceLevel.HIGH


def test_38_reasoning_is_of_medium_importance() -> None:
    """P-2: above small talk, which is of low importance."""
    assert ContextPruner().classify_importance(_assistant("I analyze it step by step.")) is ImportanceLevel.MEDIUM
    assert ContextPruner().classify_importance(_assistant("Thanks!")) is ImportanceLevel.LOW


def test_39_system_messages_stay() -> None:
    """P-2: also over the budget, unless the configuration gives them up."""
    messages = [_system("s" * 400), _user("one"), _assistant("two")]
    assert ContextPruner().prune(messages) == messages
    assert ContextPruner(PruningConfig(max_tokens=10)).prune(messages) == messages
    assert ContextPruner(PruningConfig(max_tokens=10, preserve_system=False)).prune(messages) == messages[1:]
    assert ContextPruner(PruningConfig(max_tokens=10)).prune(messages[:1]) == messages[:1]


def test_40_the_oldest_turns_go_first() -> None:
    """P-2: whole turns, until the rest fits; at most the retained ones stay when something has to go."""
    messages = [_system("s" * 40)]
    for number in range(20):
        messages += [_user(f"{number:020}"), _assistant(f"{number:020}")]
    pruned = ContextPruner(PruningConfig(max_tokens=41)).prune(messages)
    assert pruned == [messages[0], *messages[-6:]]
    assert ContextPruner(PruningConfig(max_tokens=150, retained_turns=2)).prune(messages) == [
        messages[0],
        *messages[-4:],
    ]
    last_only = PruningConfig(max_tokens=150, preserve_recent=False)
    assert ContextPruner(last_only).prune(messages) == [messages[0], *messages[-2:]]


def test_41_candidates_for_a_summary_are_old_and_matter() -> None:
    """P-2: in their order, as many as are asked for."""
    context = _conversation(4, 2)
    context.turns[0].assistant_message = _assistant("Decision: seven")
    context.turns[1].user_message = _user("Consider this")
    context.turns[3].user_message = _user("Decision: recent")
    assert _texts(context.get_summary_candidates()) == ["Decision: seven", "Consider this"]
    assert _texts(context.get_summary_candidates(max_candidates=1)) == ["Decision: seven"]


def test_42_what_fits_is_not_touched() -> None:
    """P-2: to the last token of the budget, under every strategy; the list is a new one."""
    messages = [_system("Short"), _user("q" * 38)]
    for strategy in ("truncate", "summarize", "mask"):
        pruned = ContextPruner(PruningConfig(max_tokens=10, strategy=strategy)).prune(messages, "a summary")
        assert pruned == messages
        assert pruned is not messages
    assert ContextPruner(PruningConfig(max_tokens=9)).prune([*messages, _user("r")]) == [messages[0], _user("r")]


def test_43_a_summary_stands_for_what_went() -> None:
    """P-2: after the system prompt, within its share of the budget; under ``summarize`` there is one in any case."""
    messages = [_system("System")]
    for number in range(5):
        messages += [_user(f"User message {number} " * 20), _assistant(f"Reply {number} " * 20)]
    pruned = ContextPruner(PruningConfig(max_tokens=250, retained_turns=1)).prune(messages, "About project setup")
    assert pruned == [_system("System"), _system("[Context Summary]\nAbout project setup"), *messages[-2:]]
    pruner = ContextPruner(PruningConfig(max_tokens=250, retained_turns=1, strategy="summarize"))
    system, summary, *rest = pruner.prune(messages)
    assert (system, rest) == (messages[0], messages[-2:])
    assert summary["content"].startswith("[Context Summary]\nSummarized 8 messages:\n[user]: User message 0")
    assert pruner.estimate_tokens(pruner.prune(messages)) <= 250


def test_44_segments_of_nothing_are_empty() -> None:
    """P-6: three lists."""
    assert ContextPruner().segment([]) == ([], [], [])


def test_45_system_messages_alone_are_one_segment() -> None:
    """P-6: there is nothing to summarize."""
    messages = [_system("System 1"), _system("System 2")]
    assert ContextPruner().segment(messages) == (messages, [], [])


def test_46_segments_count_whole_turns() -> None:
    """P-6: a turn of many messages is one turn."""
    step = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "grep"}}]}
    result = {"role": "tool", "tool_call_id": "1", "content": "found"}
    chat: list[list[Message]] = [[_user(f"User {n}"), step, result, _assistant(f"Assistant {n}")] for n in range(3)]
    messages: list[Message] = [_system("System"), *(message for turn in chat for message in turn)]
    system, older, recent = ContextPruner(PruningConfig(retained_turns=2)).segment(messages)
    assert (system, older, recent) == ([messages[0]], chat[0], [*chat[1], *chat[2]])


def test_47_fewer_turns_than_retained_are_all_recent() -> None:
    """P-6: nothing to summarize."""
    messages = [_system("System"), _user("User 1"), _assistant("Assistant 1")]
    assert ContextPruner().segment(messages) == (messages[:1], [], messages[1:])


def test_48_segments_are_a_tuple_of_three_lists() -> None:
    """P-6: new ones, which the caller may change."""
    messages = [_system("System"), _user("User")]
    segments = ContextPruner().segment(messages)
    assert isinstance(segments, tuple)
    for part in segments:
        part.append(_user("more"))
    assert messages == [_system("System"), _user("User")]
