"""The automatic fold, and what goes wrong elsewhere: turns that are dropped, summaries that stack, times that stand."""

import asyncio
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from rlm_memory.transcripts import ContextManager, ContextPruner, PruningConfig, Turn
from rlm_memory.transcripts.masking import mask, unmask
from rlm_memory.transcripts.messages import units
from rlm_memory.transcripts.summaries import Step

Message = dict[str, Any]


def _manager(**config: Any) -> ContextManager:
    return ContextManager(ContextPruner(PruningConfig(**{"retained_turns": 2, "strategy": "summarize", **config})))


def _call(call: str, name: str = "grep") -> Message:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": call, "function": {"name": name}}]}


def _result(call: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call, "content": text}


@pytest.mark.parametrize("calls", ["a text", [None, 5], [{"id": "a", "function": None}], [{}]])
def test_a_damaged_record_of_calls_is_folded_as_any_other(calls: Any) -> None:
    """A transcript may hold lines that were cut or written by something else. The fold ended with an AttributeError."""
    context = _manager(max_tokens=300)
    for number in range(6):
        context.add_user_message(f"Do step {number} " + "x" * 400)
        context.add_message({"role": "assistant", "content": None, "tool_calls": calls})
    context.fold_if_full()
    assert (context.stats()["folded_turns"] > 0, len(context.rebuild())) == (True, 12)


def _work(context: ContextManager, turns: int, *, output: int = 2000) -> None:
    """Let an agent work: each turn asks, calls a tool, reads its output and replies."""
    for number in range(turns):
        context.add_user_message(f"Do step {number}")
        context.add_message(_call(f"c{number}"))
        context.add_message(_result(f"c{number}", f"{number} " * (output // len(f"{number} "))))
        context.add_message({"role": "assistant", "content": f"Step {number} is done"})
        context.fold_if_full()


def _shown(context: ContextManager) -> list[Message]:
    return context.get_active_context("full")


# --- known bugs of the original --------------------------------------------------------------------


def test_an_unanswered_question_is_never_dropped() -> None:
    """P-6: compressing or pruning to nothing keeps the turn that waits for its reply."""
    shrinks: tuple[Callable[[ContextManager], object], ...] = (
        lambda context: anyio.run(context.compress),
        lambda context: context.prune_with_summary("s", preserve_turns=0),
    )
    for shrink in shrinks:
        context = _manager(retained_turns=0)
        for number in range(3):
            context.add_turn(f"User {number}", "Reply")
        context.add_user_message("Open?")
        assert shrink(context)
        assert [turn.user_message for turn in context.turns] == [{"role": "user", "content": "Open?"}]
        assert _shown(context)[-1]["content"] == "Open?"


def test_tool_messages_are_kept_with_their_turn() -> None:
    """P-6: calls and results of the recent turns are all there after a compression, in their order."""
    context = _manager()
    _work(context, 5)
    recent = context.segment()[2]
    assert anyio.run(context.compress)
    assert [message["role"] for message in recent] == ["user", "assistant", "tool", "assistant"] * 2
    assert _shown(context)[1:] == recent


def test_a_second_summary_extends_the_first() -> None:
    """P-5: one summary, which begins as it did; so it is when each of three ways writes it."""
    context = _manager(max_tokens=700)
    _work(context, 5)
    first = context.summary
    assert first is not None
    assert first.startswith("turn 1: user: Do step 0 | tools: grep | assistant: Step 0 is done\nturn 2: ")
    for number in range(5):
        context.add_turn(f"More {number}", "Reply")
    assert context.prune_with_summary("The caller's words") > 0
    for number in range(5):
        context.add_turn(f"Again {number}", "Reply")
    assert anyio.run(context.compress)
    assert context.summary is not None
    assert context.summary.startswith(f"{first}\nThe caller's words\nSummarized 10 messages:")
    assert [message["content"].count("[Context Summary]") for message in context.system_prompts] == [1]


def test_pruning_with_the_same_summary_twice_is_one_summary() -> None:
    """P-5: twenty turns and ten; the second call has nothing to fold and changes nothing."""
    context = ContextManager()
    for number in range(20):
        context.add_turn(f"User {number}", f"Assistant {number}")
    assert (context.prune_with_summary("once"), context.prune_with_summary("twice")) == (10, 0)
    assert (len(_shown(context)), context.summary) == (21, "once")


def test_each_turn_has_its_own_time() -> None:
    """P-3: the moment when it was made, with its zone."""
    before = datetime.now(UTC)
    first, second = Turn(), Turn()
    assert before <= first.timestamp <= second.timestamp <= datetime.now(UTC)
    later = Turn.from_dict({**first.to_dict(), "timestamp": (before + timedelta(days=1)).isoformat()})
    assert later.timestamp - before == timedelta(days=1)


def test_no_turns_means_no_turns() -> None:
    """P-5: 0 is a number of turns and not the lack of one; less is refused."""
    context = _manager(retained_turns=10)
    for number in range(3):
        context.add_turn(f"User {number}", "Reply")
    with pytest.raises(ValueError, match="preserve_turns"):
        context.prune_with_summary("s", preserve_turns=-1)
    assert context.prune_with_summary("all of it", preserve_turns=0) == 3
    assert (context.turns, context.turn_count) == ([], 3)


# --- what belongs together -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "brought"),
    [
        (_call("1"), _result("1", "found")),
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "grep", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "found"}]},
        ),
        (
            {"role": "assistant", "content": "", "tool_use": {"id": "1", "name": "grep"}},
            {"role": "user", "content": "", "tool_result": {"tool_use_id": "1", "content": "found"}},
        ),
    ],
)
def test_a_result_that_comes_after_another_question_is_not_parted_from_its_call(
    called: Message, brought: Message
) -> None:
    """P-2: in a list the two turns are one when something is cut, a manager puts the result to its call."""
    first, between = {"role": "user", "content": "Look"}, {"role": "user", "content": "And hurry"}
    last = {"role": "user", "content": "Done?"}
    assert units([first, called, between, brought, last]) == [[first, called, between, brought], [last]]
    context = _manager(retained_turns=2)
    for message in (first, called, between, brought, last):
        context.add_message(message)
    assert [turn.messages for turn in context.turns] == [[first, called, brought], [between], [last]]
    pruned = ContextPruner(PruningConfig(max_tokens=1, retained_turns=2)).prune([first, called, between, brought, last])
    assert pruned == [last]


def test_a_result_whose_call_is_folded_already_goes_to_the_record() -> None:
    """P-2: a model that is shown a result without a call is confused, and some providers refuse it."""
    context = _manager(retained_turns=1)
    for message in ({"role": "user", "content": "Go"}, _call("1"), {"role": "user", "content": "Wait"}):
        context.add_message(message)
    context.prune_with_summary("s")
    context.add_message(_result("1", "late"))
    context.add_message(_result("2", "of nobody's call"))
    assert [message["content"] for message in _shown(context)[1:]] == ["Wait", "of nobody's call"]
    assert [message.get("content") for message in context.rebuild()] == ["Go", None, "late", "Wait", "of nobody's call"]


def test_an_id_that_is_used_again_belongs_to_its_last_call() -> None:
    """P-2: some models number their calls from 1 in each reply; their turns are not all one."""
    turns = [[{"role": "user", "content": f"{n}"}, _call("1"), _result("1", "x")] for n in range(3)]
    assert units([message for turn in turns for message in turn]) == turns


def test_messages_of_an_agent_find_their_turn() -> None:
    """P-3: a reply after which a tool is called again is a step; what comes before any question is a turn too."""
    context = ContextManager()
    told = [
        {"role": "assistant", "content": "Welcome"},
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": "I look"},
        _call("1"),
        _result("1", "found"),
        {"role": "assistant", "content": "There"},
        {"role": "system", "content": "New rules"},
    ]
    for message in told:
        context.add_message(message)
    assert [turn.messages for turn in context.turns] == [told[:1], told[1:6]]
    assert _shown(context) == [told[6], *told[:6]]


# --- the automatic fold ----------------------------------------------------------------------------


def test_nothing_is_folded_before_the_budget_is_used_up() -> None:
    """P-2: up to it the conversation is shown as it is."""
    context = _manager(max_tokens=10)
    context.add_turn("u" * 20, "a" * 23)
    assert context.fold_if_full() is False
    context.add_turn("v", "")
    assert context.fold_if_full() is True
    assert context.turns[0].user_message == {"role": "user", "content": "v"}


def test_outputs_are_masked_before_turns_go() -> None:
    """P-2: the oldest first, no more than needed; the mask says where the whole is, and it can be put back."""
    context = _manager(max_tokens=2000, retained_turns=1, fold_to=0.5)
    _work(context, 4)
    whole = context.rebuild()
    context.add_turn("Go on", "Yes")
    assert context.folded == []
    masks = [message["content"] for message in _shown(context) if message["role"] == "tool"]
    mask = "[2,000 characters of output, no longer shown; full text: kept output "
    assert [content.startswith(mask) for content in masks] == [True, True, True, False]
    assert context.summary is None
    assert context.rebuild()[: len(whole)] == whole
    pointer = masks[0].rsplit(" ", 1)[1].rstrip("]")
    assert context.kept[pointer] == whole[2]["content"]


def test_pruning_by_masks_keeps_the_turns_when_that_suffices() -> None:
    """P-2: the oldest outputs first, no more than needed, never those of the last turn; then it truncates."""
    messages: list[Message] = []
    for number in range(4):
        messages += [
            {"role": "user", "content": f"Step {number}"},
            _call(f"c{number}"),
            _result(f"c{number}", "o" * 1000),
        ]
    short = "x" * 399
    messages[2] = _result("c0", short)
    pruner = ContextPruner(PruningConfig(max_tokens=700, strategy="mask"))
    pruned = pruner.prune(messages)
    outputs = [str(message["content"]) for message in pruned if message["role"] == "tool"]
    assert [text[:25] for text in outputs] == [short[:25], "[1,000 characters of outp", "o" * 25, "o" * 25]
    assert list(pruner.kept.values()) == ["o" * 1000]
    assert next(iter(pruner.kept)) in outputs[1]
    assert len(pruned) == len(messages)
    assert pruner.estimate_tokens(pruned) <= 700
    fewer = ContextPruner(PruningConfig(max_tokens=320, strategy="mask")).prune(messages)
    assert [str(message["content"])[:6] for message in fewer] == [
        "Step 2",
        "None",
        "[1,000",
        "Step 3",
        "None",
        "oooooo",
    ]
    fewest = ContextPruner(PruningConfig(max_tokens=290, strategy="mask")).prune(messages)
    assert fewest == messages[-3:]
    truncated = ContextPruner(PruningConfig(max_tokens=700)).prune(messages)
    assert truncated == messages[-6:]


def test_a_place_is_named_in_a_hundred_characters() -> None:
    """P-2: a mask is a line, whatever somebody calls the place; it is shorter than the output."""
    kept: dict[str, Any] = {}
    masked = mask({"role": "tool", "content": "o" * 200, "_kept_at": "p" * 200}, kept)
    assert masked["content"].endswith(f"full text: {'p' * 100}]")
    assert len(masked["content"]) < 200
    assert unmask(masked, kept)["content"] == "o" * 200


def test_output_of_any_role_is_masked_where_its_place_is_named() -> None:
    """P-2: a user's message that holds what code printed; our key never reaches a model."""
    context = _manager(max_tokens=600, retained_turns=1)
    for number in range(3):
        context.add_user_message(f"{number}" * 1000, _kept_at="cell 7 of the journal")
        context.update_last_assistant("Next")
    assert context.fold_if_full()
    assert _shown(context)[0] == {
        "role": "user",
        "content": "[1,000 characters of output, no longer shown; full text: cell 7 of the journal]",
    }
    assert all(set(message) <= {"role", "content"} for message in _shown(context))


def test_blocks_of_results_are_masked_and_other_blocks_stay() -> None:
    """P-2: a user's words beside a tool's output are the user's."""
    context = _manager(max_tokens=600, retained_turns=1, strategy="mask")
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "read", "input": {}}]}
    words = {"type": "text", "text": "and this"}
    block = {"type": "tool_result", "tool_use_id": "1", "content": "o" * 3000}
    for message in ({"role": "user", "content": "Read"}, use, {"role": "user", "content": [block, words]}):
        context.add_message(message)
    context.add_turn("Next", "Yes")
    whole = context.rebuild()
    assert context.fold_if_full()
    result, kept = _shown(context)[2]["content"]
    assert (kept, result["tool_use_id"]) == (words, "1")
    assert result["content"].startswith("[3,000 characters of output")
    assert context.rebuild() == whole


@pytest.mark.parametrize("strategy", ["truncate", "summarize", "mask"])
def test_a_long_conversation_stays_within_its_budget_and_loses_nothing(strategy: str) -> None:
    """P-2: with every strategy; only ``summarize`` tells of the folded turns, and only ``truncate`` masks nothing."""
    context = _manager(max_tokens=3000, strategy=strategy)
    context.add_system_message("You work")
    _work(context, 200)
    assert context.stats()["estimated_tokens"] <= 3000
    assert (context.summary is not None) == (strategy == "summarize")
    assert bool(context.kept) == (strategy != "truncate")
    assert context.stats()["folded_turns"] == len(context.folded) > 150
    whole = context.rebuild()
    assert [message["content"] for message in whole if message["role"] == "user"] == [
        f"Do step {n}" for n in range(200)
    ]
    assert [message["content"][:4] for message in whole if message["role"] == "tool"][7:9] == ["7 7 ", "8 8 "]
    assert context.turn_count == 200


def test_between_folds_the_context_only_grows_at_its_end() -> None:
    """P-2: so a provider's cache holds; a fold keeps the opening, and the summary as far as it went."""
    context = _manager(max_tokens=4000, opening_turns=1)
    context.add_system_message("You work")
    folds, shown = 0, ""
    for number in range(150):
        context.add_user_message(f"Do step {number}", _kept_at="the journal")
        if context.fold_if_full():
            folds += 1
            opening = json.dumps(_shown(context)[:3])[:-1]
            assert shown.startswith(opening)
        else:
            assert json.dumps(_shown(context))[:-1].startswith(shown)
        shown = json.dumps(_shown(context))[:-1]
        context.update_last_assistant(f"Step {number} is done " * 10)
    assert 2 <= folds <= 15
    assert [message["role"] for message in _shown(context)[:4]] == ["system", "user", "assistant", "system"]


def test_an_extended_summary_begins_as_it_did_until_it_is_too_long() -> None:
    """P-6: then its newest half stays, and what it said before is kept."""
    context = _manager(max_tokens=8000)
    seen: list[str] = []
    for number in range(300):
        context.add_turn(f"Question {number} " * 3, f"Answer {number} " * 300)
        if context.fold_if_full() and context.summary is not None:
            seen.append(context.summary)
    cuts = [before for before, after in itertools.pairwise(seen) if not after.startswith(before)]
    assert cuts
    assert len(cuts) < len(seen) / 2
    assert len(context.past_summaries) == len(cuts)
    assert all(past.startswith(before) for past, before in zip(context.past_summaries, cuts, strict=True))
    assert seen[-1].split("\n")[0] in {"(the lines before this one are in the record)", seen[0].split("\n")[0]}
    assert f"turn {len(context.folded)}: user: Question {len(context.folded) - 1} " in seen[-1]


def test_a_fold_goes_below_the_budget_so_that_it_is_rare() -> None:
    """P-2: down to its share, which is configured."""
    for share in (0.3, 0.9):
        context = _manager(max_tokens=1000, fold_to=share, retained_turns=1)
        while not context.fold_if_full():
            context.add_turn("q" * 100, "a" * 100)
        assert 1000 * share - 180 < context.stats()["estimated_tokens"] <= 1000 * share


def test_a_last_turn_of_many_steps_is_masked_but_for_its_newest_output() -> None:
    """P-2: an agent with one long turn is helped too; the output that it has not read yet stays."""
    context = _manager(max_tokens=1000)
    context.add_user_message("Do it all")
    for number in range(20):
        context.add_message(_call(f"c{number}"))
        context.add_message(_result(f"c{number}", f"{number:02}" * 400))
        context.fold_if_full()
    *older, newest = (message for message in _shown(context) if message["role"] == "tool")
    assert newest["content"] == "19" * 400
    assert older[0]["content"].startswith("[800 characters of output")
    assert context.stats()["estimated_tokens"] <= 1000


def test_turns_are_numbered_through_a_fold_that_takes_some_of_the_retained_ones_too() -> None:
    """P-6: it takes turns out twice, and what it numbers the second time goes on from the first."""
    context = _manager(max_tokens=800, strategy="summarize", retained_turns=3)
    for number in range(6):
        context.add_turn(f"question {number} " + "q" * 400, "a" * 400)
    assert context.fold_if_full()
    assert context.summary is not None
    told = re.findall(r"^turn (\d+): user: question (\d+)", context.summary, re.MULTILINE)
    assert told[-1] == ("5", "4")


def test_a_summary_gives_way_before_the_last_turn_does() -> None:
    """P-2: whoever wrote it; it is kept aside."""
    context = _manager(max_tokens=200)
    context.add_turn("u" * 200, "a" * 100)
    context.summary = "\n".join(f"line {number}" for number in range(100))
    before = context.summary
    assert context.fold_if_full()
    assert context.stats()["estimated_tokens"] <= 200
    assert context.summary is not None
    assert context.summary.endswith("line 98\nline 99")
    assert context.past_summaries == [before]
    assert len(context.turns) == 1
    context.turns[0].assistant_message = {"role": "assistant", "content": "a" * 900}
    assert context.fold_if_full()
    assert context.stats()["has_summary"] is False
    assert context.fold_if_full() is False


def test_the_summary_has_the_role_that_the_provider_takes() -> None:
    """P-6: a user's message, for providers with one system text."""
    context = ContextManager(ContextPruner(PruningConfig(retained_turns=0)), summary_role="user")
    context.add_turn("Q", "A")
    context.prune_with_summary("said")
    assert _shown(context) == [{"role": "user", "content": "[Context Summary]\nsaid"}]


# --- the summarizer port ----------------------------------------------------------------------------


async def _slow(steps: list[Step]) -> str:
    await asyncio.sleep(0)
    return f"# Session\n\n## Summary\n\n{len(steps)} steps\n"


def _fails(steps: list[Step]) -> str:
    raise OSError("no model")


@pytest.mark.parametrize(
    ("summarizer", "summary"),
    [
        (_slow, "4 steps"),
        (lambda _: " plain words ", "plain words"),
        (_fails, "Summarized 4 messages:\n"),
        (lambda _: "", "Summarized 4 messages:\n"),
        (None, "Summarized 4 messages:\n"),
    ],
)
def test_a_summarizer_is_asked_and_an_extract_takes_its_place(
    summarizer: Callable[[list[Step]], str] | None, summary: str
) -> None:
    """P-10: with one, with one that fails, and without one the conversation shrinks."""
    context = ContextManager(ContextPruner(PruningConfig(retained_turns=1)), summarizer=summarizer)
    for number in range(3):
        context.add_turn(f"User {number}", f"Reply {number}")
    assert anyio.run(context.compress)
    assert context.summary == summary
    assert len(context.turns) == 1


def test_why_a_summarizer_failed_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """P-10: somebody else's code is to be mended by somebody else, who needs its traceback."""
    context = ContextManager(ContextPruner(PruningConfig(retained_turns=0)), summarizer=_fails)
    context.add_turn("User", "Reply")
    assert anyio.run(context.compress)
    assert "OSError: no model" in caplog.text


def test_what_is_said_while_a_summarizer_works_is_kept() -> None:
    """P-6: and if the turns were folded meanwhile, they are not folded twice."""
    context = ContextManager(ContextPruner(PruningConfig(retained_turns=1)))

    async def talks(steps: list[Step]) -> str:
        context.add_turn("Meanwhile", "Yes")
        return "said"

    async def folds(steps: list[Step]) -> str:
        context.prune_with_summary("folded meanwhile", preserve_turns=0)
        return "said too late"

    for number in range(3):
        context.add_turn(f"User {number}", f"Reply {number}")
    context._summarizer = talks
    assert anyio.run(context.compress)
    assert [turn.user_message["content"] for turn in context.turns if turn.user_message] == ["User 2", "Meanwhile"]
    context._summarizer = folds
    assert anyio.run(context.compress) is False
    assert (context.summary, context.turn_count, len(context.folded)) == ("said\nfolded meanwhile", 4, 4)


# --- tokens, snapshots, imports ---------------------------------------------------------------------


def test_a_tokenizer_of_the_caller_counts_exactly_and_is_named() -> None:
    """P-9: each text alone, and the budget is in its tokens; the label says which it was."""
    counted: list[str] = []

    def words(text: str) -> int:
        counted.append(text)
        return len(text.split())

    pruner = ContextPruner(PruningConfig(max_tokens=6), count_tokens=words, counted_with="words")
    messages = [{"role": "user", "content": text} for text in ("one two three", "four five six seven", "eight nine")]
    assert pruner.estimate_tokens(messages) == 9
    assert pruner.prune(messages) == messages[1:]
    assert sorted(counted) == sorted(message["content"] for message in messages)  # a text is counted once
    assert ContextManager(pruner).stats()["counted"] == "words"
    with_summary = ContextPruner(PruningConfig(max_tokens=18), count_tokens=words).prune(
        [{"role": "user", "content": "w " * 10}, *messages], "a b c d e f g h"
    )
    assert with_summary[0]["content"] == "[Context Summary]\na b..."


def test_a_folded_conversation_comes_back_from_json() -> None:
    """P-8: its record, masks and summaries too; the snapshot shares nothing with the conversation."""
    context = _manager(max_tokens=1500)
    context.add_system_message("You work")
    _work(context, 40)
    snapshot = context.snapshot()
    text = json.dumps(snapshot)
    other = ContextManager()
    other.load_snapshot(json.loads(text))
    assert json.dumps(other.snapshot()) == text
    assert (other.rebuild(), other.stats()) == (context.rebuild(), context.stats())
    _work(context, 5)
    assert json.dumps(snapshot) == text
    _work(other, 5)
    assert _shown(other) == _shown(context)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"model": "gpt", "messages": []},
        {"turns": None},
        {"turns": ["x"]},
        {"turns": [{"assistant": None}]},
        {"turns": [{"user": 5}]},
        {"turns": [{"user": {"role": "user", "content": "x"}, "timestamp": "yesterday"}]},
        {"turns": [{"user": {"role": "user", "content": "x", "_pointer": "gone"}}]},
        {"turns": [], "turn_count": "many"},
        {"turns": [], "pruner_config": {"max_tokens": -1}},
        {"turns": [], "system_prompts": [7]},
    ],
)
def test_what_is_no_snapshot_is_refused_and_changes_nothing(data: dict[str, Any]) -> None:
    """P-8: a file that somebody else has written."""
    context = _manager()
    context.add_turn("Q", "A")
    before = context.snapshot()
    with pytest.raises(ValueError, match="not a snapshot of a conversation"):
        context.load_snapshot(data)
    assert context.snapshot() == before


def test_it_is_imported_alone() -> None:
    """P-1: the standard library is all that comes with it, wherever it is used."""
    program = "import sys; before = set(sys.modules); import rlm_memory.transcripts; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "rlm_memory" in loaded
    assert loaded - set(sys.stdlib_module_names) == {"rlm_memory"}
    assert not [name for name in done.stdout.split() if name.startswith("rlm_memory.") and "transcripts" not in name]
