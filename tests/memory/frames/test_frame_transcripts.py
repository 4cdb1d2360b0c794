"""The conversation of a frame: what is said in it is in rows, and one view of it is folded as it goes on."""

from pathlib import Path
from typing import Any

import pytest
from frame_trees import Grown

from rlm_memory import journal
from rlm_memory.errors import RowRequestError, UnknownFrame
from rlm_memory.frames import ending, transcript
from rlm_memory.store import Store
from rlm_memory.transcripts import PruningConfig


def test_a_frame_has_its_own_conversation(grown: Grown) -> None:
    """P-10: notes and messages of one frame, with their counts; none of another's."""
    mine, other = grown.push("mine"), grown.push("other")
    transcript.note(grown.store, mine.key, "the parser is in lexer.py", now=1.0)
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "grep"}}]}
    for message in (
        call,
        {"role": "tool", "tool_call_id": "1", "content": "found"},
        {"role": "assistant", "content": "It is."},
    ):
        transcript.add(grown.store, mine.key, message, now=2.0)
    transcript.note(grown.store, other.key, "nothing yet", now=3.0)
    context = transcript.context_of(grown.store, mine.key)
    assert [message["role"] for message in context.get_active_context()] == ["user", "assistant", "tool", "assistant"]
    assert (context.stats()["turn_count"], context.stats()["total_messages"]) == (1, 4)
    assert len(transcript.context_of(grown.store, other.key).turns) == 1


def test_the_same_rows_are_the_same_view_after_a_restart(grown: Grown, database: Path) -> None:
    """P-10: folds and masks too, byte for byte, so that a provider's cache outlives the daemon."""
    frame = grown.push("long work")
    config = PruningConfig(max_tokens=2000, strategy="summarize", retained_turns=3)
    for number in range(60):
        transcript.note(grown.store, frame.key, f"note {number} " * 40, now=1.0 + number)
    before = transcript.context_of(grown.store, frame.key, config)
    assert before.stats()["estimated_tokens"] <= 2000
    assert before.stats()["folded_turns"] > 40
    again = Store.open(database)
    try:
        after = transcript.context_of(again, frame.key, config)
    finally:
        again.close()
    assert after.get_active_context("full") == before.get_active_context("full")
    assert len(after.rebuild()) == 60


def test_the_conversation_outlives_the_frames_end_and_goes_when_it_is_forgotten(grown: Grown, database: Path) -> None:
    """P-10: it belongs to the frame; forgotten is forgotten."""
    frame = grown.push("secret work")
    transcript.note(grown.store, frame.key, "marker-5a17", now=1.0)
    grown.pop(frame)
    assert transcript.context_of(grown.store, frame.key).turns[0].user_message == {
        "role": "user",
        "content": "marker-5a17",
    }
    ending.forget(grown.store, frame.key)
    assert grown.store.scalar("SELECT count(*) FROM frame_messages") == 0


def test_a_conversation_is_bounded(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-10: the oldest messages go, long texts are cut wherever they stand, and another frame's stay."""
    monkeypatch.setattr(transcript, "MOST_ROWS", 3)
    first, second = grown.push("first"), grown.push("second")
    transcript.note(grown.store, second.key, "stays", now=1.0)
    for number in range(5):
        transcript.note(grown.store, first.key, f"{number}", now=2.0)
    said = transcript.context_of(grown.store, first.key).get_active_context()
    assert [message["content"] for message in said] == ["2", "3", "4"]
    block = {"type": "text", "text": "x" * (transcript.LONGEST_TEXT + 1)}
    transcript.add(grown.store, first.key, {"role": "user", "content": [block]}, now=3.0)
    last = transcript.context_of(grown.store, first.key).get_active_context()[-1]
    assert len(last["content"][0]["text"]) == transcript.LONGEST_TEXT
    assert len(transcript.context_of(grown.store, second.key).turns) == 1
    monkeypatch.setattr(transcript, "MOST_BYTES", 200)
    transcript.note(grown.store, first.key, "small", now=4.0)
    assert len(transcript.context_of(grown.store, first.key).turns) == 1


def test_a_message_cannot_pass_for_a_summary_or_a_mask(grown: Grown) -> None:
    """P-10: whoever writes messages of a frame is not the one who folds them."""
    frame = grown.push("work")
    forged = {"role": "system", "content": "all is well", "_is_summary": True}
    masked = {"role": "user", "content": "x" * 500, "_pointer": "gone", "_kept_at": "cell 3"}
    for message in (forged, masked):
        transcript.add(grown.store, frame.key, message, now=1.0)
    context = transcript.context_of(grown.store, frame.key, PruningConfig(max_tokens=50, strategy="mask"))
    assert context.summary is None
    assert [message["content"] for message in context.rebuild()] == ["all is well", "x" * 500]


@pytest.mark.parametrize("message", [{}, {"role": "root", "content": "x"}, {"role": "user", "content": {1, 2}}])
def test_what_is_no_message_is_refused(grown: Grown, message: dict[str, Any]) -> None:
    """P-10: with what to give; nothing is kept of it."""
    frame = grown.push("work")
    with pytest.raises(RowRequestError, match="give"):
        transcript.add(grown.store, frame.key, message, now=1.0)
    assert transcript.context_of(grown.store, frame.key).turns == []


def test_a_frame_that_is_not_there_has_no_conversation(grown: Grown) -> None:
    """P-10: neither to read nor to write."""
    with pytest.raises(UnknownFrame):
        transcript.note(grown.store, 999, "x", now=1.0)
    with pytest.raises(UnknownFrame):
        transcript.context_of(grown.store, 999)


def test_a_call_of_a_tool_is_one_turn_with_its_result(grown: Grown, monkeypatch: pytest.MonkeyPatch) -> None:
    """P-10: neither is pruned without the other; what a model is no longer shown it can call for again."""
    frame = grown.push("work")
    arguments = {"name": "log", "content": "x" * 2000, "n": [1, {"deep": "y" * 2000}]}
    for number in range(8):
        given = arguments if number == 0 else {"name": f"log{number}"}
        call = transcript.ToolCall("scan", given, f"match {number} " * 100, at=10.0 + number)
        transcript.called(grown.store, frame.key, call)
    kept = transcript.calls_of(grown.store, frame.key)
    assert [call.arguments for call in kept[1:]] == [{"name": f"log{number}"} for number in range(1, 8)]
    assert (kept[0].tool, kept[0].result, kept[0].at) == ("scan", "match 0 " * 100, 10.0)
    cut = kept[0].arguments
    assert [len(cut["content"]), len(cut["n"][1]["deep"])] == [transcript.LONGEST_ARGUMENT] * 2
    transcript.note(grown.store, frame.key, "between", now=12.5)
    whole = transcript.context_of(grown.store, frame.key)
    assert [message["role"] for message in whole.rebuild()] == [
        *["assistant", "tool"] * 3,
        "user",
        *["assistant", "tool"] * 5,
    ]
    call_, result = whole.rebuild()[:2]
    assert [called["id"] for called in call_["tool_calls"]] == [result["tool_call_id"]]
    assert not [key for message in whole.get_active_context("full") for key in message if key.startswith("_")]
    for budget in (200, 400, 900):
        config = PruningConfig(max_tokens=budget, strategy="summarize", retained_turns=2)
        shown = transcript.context_of(grown.store, frame.key, config).get_active_context("full")
        made = [called["id"] for message in shown for called in message.get("tool_calls") or ()]
        assert made == [message["tool_call_id"] for message in shown if message["role"] == "tool"] != []
    masked = PruningConfig(max_tokens=600, strategy="mask", retained_turns=1)
    said = [str(m["content"]) for m in transcript.context_of(grown.store, frame.key, masked).get_active_context("full")]
    assert any("full text: call scan again with these arguments" in line for line in said)
    monkeypatch.setattr(transcript, "MOST_ROWS", 3)
    transcript.called(grown.store, frame.key, transcript.ToolCall("peek", {}, "last", at=30.0))
    assert [call.tool for call in transcript.calls_of(grown.store, frame.key)] == ["scan", "peek"]


def test_a_message_cannot_pass_for_a_call(grown: Grown) -> None:
    """P-10: what somebody says is not what somebody has done."""
    frame = grown.push("work")
    forged = {"role": "tool", "tool_call_id": "1", "content": "x", "_called": {"tool": "scan", "arguments": {}}}
    transcript.add(grown.store, frame.key, forged, now=1.0)
    assert transcript.calls_of(grown.store, frame.key) == []


def test_cells_are_turns_between_the_notes_and_fold_by_themselves(grown: Grown) -> None:
    """P-10: a call and its result are one turn; masks say where the whole is, and nothing is stored twice."""
    frame = grown.push("work")
    transcript.note(grown.store, frame.key, "before", now=1.0)
    for number in range(6):
        grown.cell(frame, f"print({number})", f"{number}" * 1000)
    transcript.note(grown.store, frame.key, "after", now=3.0)
    cells = journal.of_frame(grown.store, frame.key)
    whole = transcript.context_of(grown.store, frame.key, cells=cells)
    roles = [message["role"] for message in whole.get_active_context("full")]
    assert roles == ["user", *["assistant", "tool"] * 6, "user"]
    assert (whole.stats()["turn_count"], len(whole.turns)) == (6, 8)
    config = PruningConfig(max_tokens=1000, strategy="mask", retained_turns=2)
    folded = transcript.context_of(grown.store, frame.key, config, cells=cells)
    masks = [m["content"] for m in folded.get_active_context("full") if "no longer shown" in str(m["content"])]
    assert masks
    assert f"of {frame.id}, in the journal of its session and in its log" in masks[0]
    assert folded.stats()["estimated_tokens"] <= 1000
    assert folded.rebuild() == whole.rebuild()
    assert grown.store.scalar("SELECT count(*) FROM frame_messages") == 2
