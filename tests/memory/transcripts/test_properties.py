"""What holds for every conversation, budget and strategy: the budget, pairs of calls and results, no surprise."""

from collections import Counter
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig
from rlm_memory.transcripts.messages import opens_turn, units
from rlm_memory.transcripts.pruner import Strategy

Message = dict[str, Any]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
SIZES = st.sampled_from([0, 1, 7, 30, 199, 400, 401, 1500])
BUDGETS = st.integers(0, 900)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Messages in any order in which a conversation can come: results late, ids used again, systems in between."""
    messages: list[Message] = []
    waiting: list[str] = []
    for number in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["system", "user", "assistant", "call", "result", "result"]))
        text = f"{number:03} " + draw(st.sampled_from("xyz")) * draw(SIZES)
        if kind == "call":
            waiting.append(draw(st.sampled_from([f"c{number}", "c0"])))
            call = {"id": waiting[-1], "function": {"name": "grep", "arguments": text}}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        elif kind == "result" and waiting:
            at = draw(st.integers(0, len(waiting) - 1))
            messages.append({"role": "tool", "tool_call_id": waiting.pop(at), "content": text})
        elif kind in {"system", "user", "assistant"}:
            extra = {"_kept_at": "the journal"} if kind == "user" and draw(st.booleans()) else {}
            messages.append({"role": kind, "content": text, **extra})
    return messages


def _words(text: str) -> int:
    """A tokenizer: exact, and nothing like a fourth of the characters."""
    return len(text.split()) + len(text) // 50


def _pruners(draw: st.DrawFn) -> ContextPruner:
    config = PruningConfig(
        max_tokens=draw(BUDGETS),
        retained_turns=draw(st.integers(0, 6)),
        strategy=draw(st.sampled_from(STRATEGIES)),
        preserve_recent=draw(st.booleans()),
        fold_to=draw(st.sampled_from([0.2, 0.5, 1.0])),
        opening_turns=draw(st.integers(0, 2)),
    )
    return ContextPruner(config, count_tokens=draw(st.sampled_from([None, _words])))


pruners = st.composite(_pruners)()


def _pairs(messages: list[Message]) -> Counter[tuple[str, str]]:
    """Each result with the call before it that it belongs to; "" where there is none."""
    made: dict[str, str] = {}
    found: Counter[tuple[str, str]] = Counter()
    for message in messages:
        for call in message.get("tool_calls") or ():
            made[call["id"]] = call["function"]["arguments"]
        if message["role"] == "tool":
            found[made.get(message["tool_call_id"], ""), message["tool_call_id"]] += 1
    return found


def _unanswered(messages: list[Message]) -> list[str]:
    made = [call["function"]["arguments"] for message in messages for call in message.get("tool_calls") or ()]
    answered = {call for call, _ in _pairs(messages)}
    return [call for call in made if call not in answered]


def _chat(messages: list[Message]) -> list[Message]:
    return [message for message in messages if message["role"] != "system"]


def _manager(pruner: ContextPruner, messages: list[Message]) -> ContextManager:
    context = ContextManager(pruner)
    for message in messages:
        context.add_message(message)
    return context


def _least(pruner: ContextPruner, messages: list[Message], turns: list[list[Message]]) -> int:
    """The tokens that have to stay: those of the system prompts and of some turns."""
    system = [message for message in messages if message["role"] == "system"]
    return pruner.estimate_tokens([*system, *(message for turn in turns for message in turn)])


@given(conversations(), pruners, st.sampled_from([None, "in short " * 5, "line\n" * 200]))
def test_a_pruned_conversation_is_never_over_its_budget(
    messages: list[Message], pruner: ContextPruner, summary: str | None
) -> None:
    """P-2: unless the system prompts and the last turn alone exceed it; then there is nothing else."""
    pruned = pruner.prune(messages, summary)
    least = _least(pruner, messages, units(_chat(messages))[-1:])
    assert pruner.estimate_tokens(pruned) <= max(pruner.config.max_tokens, least)
    assert not messages or pruned


@given(conversations(), pruners)
def test_pruning_parts_no_call_from_its_result(messages: list[Message], pruner: ContextPruner) -> None:
    """P-2: each result that stays has its call, and each call its results."""
    pruned = pruner.prune(messages)
    assert not _pairs(pruned) - _pairs(messages)
    assert set(_unanswered(pruned)) <= set(_unanswered(messages))


@given(conversations(), pruners)
def test_pruning_keeps_the_prompts_and_the_last_question(messages: list[Message], pruner: ContextPruner) -> None:
    """P-2: in their order, and all from the last question on; the messages of the caller are not touched."""
    before = repr(messages)
    pruned = pruner.prune(messages)
    assert [one for one in messages if one["role"] == "system"] == [
        one for one in pruned if one["role"] == "system" and not one["content"].startswith("[Context Summary]")
    ]
    chat = _chat(messages)
    asked = [at for at, message in enumerate(chat) if opens_turn(message)]
    assert not asked or _chat(pruned)[-len(chat[asked[-1] :]) :] == chat[asked[-1] :]
    assert repr(messages) == before


@given(conversations(), pruners, st.sampled_from([None, "in short " * 5]))
def test_pruning_twice_is_pruning_once(messages: list[Message], pruner: ContextPruner, summary: str | None) -> None:
    """P-2: what has been pruned fits, or cannot be made to fit."""
    once = pruner.prune(messages, summary)
    assert pruner.prune(once, summary) == once


@given(conversations(), pruners, BUDGETS)
def test_more_budget_never_keeps_less(messages: list[Message], pruner: ContextPruner, more: int) -> None:
    """P-2: each message that a budget keeps, a larger one keeps too; what the larger one masks, the smaller one did."""
    config = pruner.config
    fields = {name: getattr(config, name) for name in ("retained_turns", "strategy", "preserve_recent")}
    larger = ContextPruner(PruningConfig(max_tokens=config.max_tokens + more, **fields))
    larger.tokens = pruner.tokens
    little, much = _chat(pruner.prune(messages)), _chat(larger.prune(messages))
    assert len(little) <= len(much)
    for small, large in zip(reversed(little), reversed(much), strict=False):
        assert large == small or "_pointer" in small


@given(conversations(), pruners)
def test_a_folded_conversation_is_never_over_its_budget(messages: list[Message], pruner: ContextPruner) -> None:
    """P-2: unless the system prompts, the opening and the last turn exceed it."""
    context = _manager(pruner, messages)
    opening, turns = pruner.config.opening_turns, [turn.messages for turn in context.turns]
    least = _least(pruner, messages, turns[:opening] + turns[max(len(turns) - 1, opening) :])
    context.fold_if_full()
    assert context.stats()["estimated_tokens"] <= max(pruner.config.max_tokens, least)


@given(conversations(), pruners)
def test_a_fold_loses_nothing_and_parts_no_pair(messages: list[Message], pruner: ContextPruner) -> None:
    """P-6: the conversation can be rebuilt; the view has each call with its results; a second fold changes nothing."""
    context = _manager(pruner, messages)
    whole = context.rebuild()
    assert Counter(map(repr, whole)) == Counter(repr({k: v for k, v in m.items() if k != "_kept_at"}) for m in messages)
    context.fold_if_full()
    assert context.rebuild() == whole
    shown = context.get_active_context("full")
    assert not _pairs(shown) - _pairs(messages)
    assert set(_unanswered(shown)) <= set(_unanswered(messages))
    before = context.snapshot()
    assert context.fold_if_full() is False
    assert context.snapshot() == before


@settings(max_examples=60)
@given(conversations(), pruners)
def test_folding_as_the_conversation_goes_on_only_adds_to_the_record(
    messages: list[Message], pruner: ContextPruner
) -> None:
    """P-6: the record grows, the view grows at its end between folds, and there is one summary at most."""
    context = ContextManager(pruner)
    shown: list[Message] = []
    for message in messages:
        context.add_message(message)
        folded, kept, before = list(context.folded), set(context.kept), shown
        changed = context.fold_if_full()
        assert context.folded[: len(folded)] == folded
        assert kept <= set(context.kept)
        shown = context.get_active_context("full")
        assert sum(bool(one.get("_is_summary")) for one in context.system_prompts) <= 1
        assert not _pairs(shown) - _pairs(messages)
        late = message["role"] == "tool" and context.turns[-1].messages[-1:] != [message]
        if not changed and message["role"] != "system" and not late:
            assert shown == [*before, {key: value for key, value in message.items() if key != "_kept_at"}]


@given(conversations(), pruners, st.integers(0, 8))
def test_documented_pruning_by_turns_parts_no_pair_and_loses_nothing(
    messages: list[Message], pruner: ContextPruner, turns: int
) -> None:
    """P-5: whatever number of turns stays."""
    context = _manager(pruner, messages)
    whole, count = context.rebuild(), len(context.turns)
    gone = context.prune_with_summary("in short", preserve_turns=turns)
    assert len(context.turns) == count - gone
    assert context.rebuild() == whole
    shown = context.get_active_context("full")
    assert not _pairs(shown) - _pairs(messages)
    assert set(_unanswered(shown)) <= set(_unanswered(messages))
    assert (context.summary == "in short") == (gone > 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(messages=conversations(), budget=BUDGETS)
def test_a_snapshot_of_any_conversation_comes_back(strategy: Strategy, messages: list[Message], budget: int) -> None:
    """P-8: folded or not."""
    context = _manager(ContextPruner(PruningConfig(max_tokens=budget, strategy=strategy)), messages)
    context.fold_if_full()
    other = ContextManager()
    other.load_snapshot(context.snapshot())
    assert other.snapshot() == context.snapshot()
    assert other.rebuild() == context.rebuild()
