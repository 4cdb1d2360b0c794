"""The turns of a frame: what was run, called and noted for it, as a model that goes on is shown it."""

from pathlib import Path

import pytest

from rlm_memory.errors import StoreUnavailable
from rlm_memory.frames import transcript

pytestmark = pytest.mark.anyio


async def test_calls_of_other_tools_are_turns_of_the_frame_that_they_were_made_for(attach) -> None:
    """P-10: each call with its result, errors too, in the order of time among cells and notes; the log lists them."""
    async with attach("calls") as agent:
        await agent("scan", name="log", pattern="x")  # for no frame
        frame = (await agent("push", goal="task"))["frame"]
        await agent("load_context", name="log", content="one ERROR\ntwo\n" * 500, session=frame)
        await agent.run("print(log['line_count'])", session=frame)
        await agent("scan", name="log", pattern="ERROR", max_matches=1)  # the current frame, in the session above
        found = await agent("scan", name="log", pattern="ERROR", max_matches=1, session=frame)
        await agent("peek", name="missing", session=frame)
        await agent("frame", note="look at two", session=frame)
        await agent("status", session=frame)
        turns = (await agent("frame", do="turns", session=frame))["turns"]
        called = [turn["tool_calls"][0] for turn in turns if turn.get("tool_calls")]
        assert [call["function"]["name"] for call in called] == ["load_context", "eval_code", "scan", "peek"]
        assert [turn["role"] for turn in turns] == [*["assistant", "tool"] * 4, "user"]
        results = {turn["tool_call_id"]: turn["content"] for turn in turns if turn["role"] == "tool"}
        loaded, _, scanned, peeked = (results[call["id"]] for call in called)
        assert '"line_count":1000' in loaded
        assert found["results"][0]["text"] in scanned
        assert "variable_not_found" in peeked
        arguments = called[0]["function"]["arguments"]
        assert '"name": "log"' in arguments
        assert len(arguments) < 700
        popped = await agent("pop", id=frame, summary="done")
        assert (await agent("frame", id=frame, do="turns"))["turns"] == turns
        log = Path(popped["log"]).read_text()
        assert "tool_calls: 4\n" in log
        assert "scan(name='log', pattern='ERROR', max_matches=1)" in log
        await agent("frame", id=frame, do="forget")
        await agent("end_session")


async def test_a_call_that_cannot_be_kept_has_succeeded_all_the_same(connect_own, monkeypatch) -> None:
    """A full disk costs the turn, not the answer."""
    async with connect_own("root") as agent:
        await agent("push", goal="task")
        await agent("load_context", name="log", content="one\n", session="f2")

        def full(*_: object) -> None:
            raise StoreUnavailable("x", "disk full")

        with monkeypatch.context() as patch:
            patch.setattr(transcript, "called", full)
            assert (await agent("peek", name="log", session="f2"))["content"] == "one"
        assert len((await agent("frame", do="turns", session="f2"))["turns"]) == 2


async def test_a_frame_has_turns_of_its_cells_and_notes_also_after_its_session(connect_own) -> None:
    """P-10: what was run for it and noted of it, with counts; forgotten with it."""
    async with connect_own("root") as agent:
        await agent("push", goal="task")
        await agent.run("print('SEEN')", session="f2")
        assert (await agent("frame", note="look at the parser", session="f2"))["noted"] is True
        await agent.run("print('theirs')", session="root")
        shown = await agent("frame", do="turns", session="f2")
        call, result, note = shown["turns"]
        assert call["tool_calls"][0]["function"]["name"] == "eval_code"
        assert (result["content"], note) == ("SEEN\n".strip(), {"role": "user", "content": "look at the parser"})
        assert (shown["stats"]["turn_count"], shown["stats"]["total_messages"]) == (1, 3)
        await agent("pop", id="f2", summary="done")
        assert (await agent("frame", id="f2", do="turns"))["turns"] == shown["turns"]
        assert (await agent("frame", id="f2", do="turns", note="x"))["error"] == "invalid_arguments"
