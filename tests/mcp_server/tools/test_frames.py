"""Frames through the tools, with real kernels: what an agent is told, what its parent gets, what is kept."""

import asyncio
import json
from pathlib import Path
from xml.etree import ElementTree as ET

import nbformat
import pytest
import yaml
from markdown_it import MarkdownIt
from waiting import until

from rlm_mcp.daemon.tool_lists import as_listed
from rlm_mcp.service.service import Service
from rlm_mcp.tools.catalogue import TOOLS
from rlm_memory.errors import StoreUnavailable
from rlm_memory.frames.runtime import Runtime
from rlm_memory.transcripts.tokens import ESTIMATED, Tokens

pytestmark = pytest.mark.anyio


def front_matter(log: str) -> dict[str, object]:
    """The YAML at the head of a log."""
    _, told, _ = Path(log).read_text().split("---\n", 2)
    loaded = yaml.safe_load(told)
    assert isinstance(loaded, dict)
    return loaded


async def test_a_goal_is_worked_on_in_a_fork_and_its_parent_gets_what_came_of_it(connect_own) -> None:
    """F-4, F-5, F-6: variables are there, cells of the frame are its log and notebook, a value goes up."""
    async with connect_own("root") as agent:
        await agent("load_context", name="log", content="one\ntwo\n")
        await agent.run("n = 20")
        pushed = await agent("push", goal="find the answer")
        assert (pushed["frame"], pushed["parent"], pushed["status"]) == ("f2", "f1", "in_progress")
        assert (pushed["breadcrumb"], pushed["current"], pushed["forked_from"]) == ("f1 > f2", "f2", "root")
        assert ET.fromstring(pushed["context"]).find(".//frame[@id='f2']/goal").text == "find the answer"
        assert (await agent.run("n += 22; print('FACT in output')", session="f2"))["stdout"] == "FACT in output\n"
        await agent.run("found = {'answer': n, 'lines': log['line_count']}", session="f2")
        popped = await agent(
            "pop", id="f2", summary="It is 42.", decisions=["add"], artifacts=["a.py"], hand_over=["found", "log"]
        )
        assert (popped["status"], popped["source"], popped["current"]) == ("completed", "caller", "f1")
        assert popped["handed_over"] == ["log", "found"]
        told = front_matter(popped["log"])
        assert (told["frame"], told["goal"], told["status"]) == ("f2", "find the answer", "completed")
        assert (told["artifacts"], told["decisions"], told["cells"], told["tool_calls"]) == (["a.py"], ["add"], 2, 2)
        assert told["seconds"] >= 0
        log = Path(popped["log"]).read_text()
        assert "FACT in output" in log
        assert "n = 20" not in log  # the parent's own cell
        notebook = nbformat.read(Path(popped["log"]).with_suffix(".ipynb"), as_version=4)
        nbformat.validate(notebook)
        assert [cell.source for cell in notebook.cells if cell.cell_type == "code"][1].startswith("found = ")
        seen = await agent.run("print(n, found, frames['f2']['summary'], frames['f2']['values'])")
        assert seen["stdout"] == "20 {'answer': 42, 'lines': 2} It is 42. ['found', 'log']\n"
        context = (await agent("frame"))["context"]
        assert "<summary>It is 42.</summary>" in context
        assert "FACT" not in context


async def test_a_log_shows_a_reader_no_markup_of_goals_and_cells(connect_own) -> None:
    """A picture in it would tell a server what the session knows, as soon as somebody looks at the log."""
    hostile = (
        "![x](http://h.example/?a=1) <img src=http://h.example/> `` [x](http://h.example/) \\![x](http://h.example/)"
    )
    async with connect_own("root") as agent:
        for number, summary in enumerate(("", hostile), 2):
            await agent("push", goal=hostile)
            await agent.run(f"print({hostile!r})", session=f"f{number}")
            popped = await agent("pop", id=f"f{number}", summary=summary)
            assert popped["source"] == ("caller" if summary else "extract")
            _, _, body = Path(popped["log"]).read_text().split("---\n", 2)
            assert body.count("h.example/?a=1") > 3
            shown = MarkdownIt("commonmark").render(body)
            assert "<img" not in shown
            assert "<a " not in shown


async def test_a_push_that_is_cancelled_is_taken_back(connect_own, own: Service) -> None:
    """F-5: nobody was told of the goal, so nobody would end it, and the goal above it could not end."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        planned = (await agent("plan", goal="later"))["frame"]
        session, promised = own.sessions.get("root"), Runtime(own._store, own.frames.effects(None)).owed
        assert session is not None
        for goal in ("at once", planned):
            async with session.kernel.turn.lock:  # so that the kernel cannot be forked
                call = asyncio.create_task(agent("push", goal=goal))
                await until(promised)
                call.cancel()
                await until(lambda: not promised())
        assert (await agent("frame"))["tree"] == ["f1 in_progress root", f"  {planned} planned later"]


async def test_the_kernel_of_a_frame_ends_with_it_and_the_same_pop_gets_the_same_answer(connect_own, own) -> None:
    """A client whose answer was lost asks again, also by the id that was its session."""
    async with connect_own("root") as agent:
        fork = (await agent("push", goal="task"))["session"]
        await agent.run("x = 1", session="f2")
        first = await agent("pop", id="f2", summary="done")
        assert own.sessions.get(fork) is None
        again = await agent("pop", id="f2", summary="done")
        assert {name: again[name] for name in first} == first
        assert (await agent("pop", summary="done", session="f2"))["summary"] == "done"
        other = await agent("pop", id="f2", summary="something else")
        assert (other["error"], other["hint"]) == ("frame_status", "it has ended: reopen it first")


async def test_parallel_pushes_leave_the_current_frame_and_say_what_to_pass(connect_own) -> None:
    """Sub-agents of one program share its connection: each passes the id of its frame as session."""
    async with connect_own("root") as agent:
        first, second = await agent("push", goal="one"), await agent("push", goal="two", parent="f1")
        assert (first["current"], second["current"]) == ("f2", "f2")
        assert second["current_unchanged"] == "another goal of yours is in progress here; pass session='f3'"
        await agent.run("x = 'one'", session="f2"), await agent.run("x = 'two'", session="f3")
        seen = [(await agent.run("x", session=name))["result"] for name in ("f2", "f3")]
        assert seen == ["'one'", "'two'"]
        await agent("pop", id="f3", summary="two is done")
        assert (await agent("frame"))["current"] == "f2"
        assert (await agent("pop", summary="one is done"))["current"] == "f1"


async def test_a_push_of_a_goal_that_is_planned_there_names_the_plan(connect_own) -> None:
    """Else a tree gets a second frame for one goal, and nobody notices that the first one stays planned."""
    async with connect_own("root") as agent:
        await agent("plan", goal="read")
        assert "planned_too" not in await agent("push", goal="write", fork=False)
        pushed = await agent("push", goal="read ", parent="f1", fork=False)
        assert (pushed["frame"], pushed["planned_too"].partition(":")[0]) == ("f4", "f2 plans the same goal")
        assert "planned_too" not in await agent("push", goal="f2", fork=False)


async def test_agents_that_a_client_names_have_a_current_frame_each(connect_own) -> None:
    """Codex names the thread of each call: two of one connection do not move each other's frame."""
    async with connect_own("root") as agent:
        one, two = {"threadId": "thread-one"}, {"threadId": "thread-two"}
        assert (await agent("push", meta=one, goal="one", fork=False))["current"] == "f2"
        assert (await agent("frame", meta=two))["current"] == "f1"
        pushed = await agent("push", meta=two, goal="two", fork=False)
        assert (pushed["current"], pushed["parent"]) == ("f3", "f1")
        assert "current_unchanged" not in pushed
        assert [(await agent("frame", meta=meta))["current"] for meta in (one, two, {"threadId": 7})] == [
            "f2",
            "f3",
            "f1",
        ]


async def test_a_fork_with_a_goal_is_a_push(connect_own) -> None:
    """It has the name that it was to have, and ends with its frame; one without a goal stands for itself."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        forked = await agent("fork_session", goal="try it", name="trial")
        assert (forked["frame"], forked["current"], forked["session"]) == ("f2", "f2", "trial")
        assert (await agent.run("n + 1", session="f2"))["result"] == "2"
        await agent("pop", summary="tried")
        assert (await agent("list_vars", session="f2"))["session"] == "root"
        assert (await agent("fork_session", name="aside"))["session"] == "aside"
        assert (await agent("frame"))["tree"] == [
            "f1 in_progress root",
            "  f2 completed try it",
            "  f3 in_progress aside",
        ]


async def test_a_rollback_is_in_the_log_of_the_frames_that_it_concerns(connect_own, tmp_path) -> None:
    """It undoes memory only: the frame and its cells stay, and the log says what happened."""
    strict = tmp_path / "kept.yaml"
    strict.write_text("extends: default\ncheckpoint: strict\n")
    async with connect_own("root", RLM_KERNEL_POLICY=str(strict)) as agent:
        await agent("push", goal="task")
        await agent.run("n = 1", session="f2")
        await agent.run("n = 2", session="f2")
        assert len((await agent("rollback", session="f2"))["undone"]) == 1
        log = Path((await agent("pop", id="f2", summary="done"))["log"]).read_text()
        assert "rollback" in log
        assert "n = 2" in log


async def test_a_frame_may_share_its_parents_session(connect_own, own) -> None:
    """F-6: cells are told apart by what they were run for, and the shared kernel lives on."""
    async with connect_own("root") as agent:
        shared = await agent("push", goal="shared", fork=False)
        assert shared["session"] == "root"
        await agent.run("mine = 1", session="f2")
        await agent.run("theirs = 2", session="root")
        popped = await agent("pop", id="f2", summary="done")
        log = Path(popped["log"]).read_text()
        assert "mine = 1" in log
        assert "theirs" not in log
        assert (await agent.run("mine + theirs"))["result"] == "3"


async def test_a_plan_is_pushed_by_its_id_and_forks_the_nearest_kernel_above(connect_own) -> None:
    """F-10: planned frames have no kernel; what is above them starts with them, without one."""
    async with connect_own("root") as agent:
        await agent.run("n = 5")
        told = await agent("plan", goal="story", children=["a", {"goal": "b", "children": ["c"]}])
        assert told["planned"] == [
            "f2 planned story",
            "  f3 planned a",
            "  f4 planned b",
            "    f5 planned c",
        ]
        pushed = await agent("push", goal="f5")
        assert (pushed["breadcrumb"], pushed["forked_from"]) == ("f1 > f2 > f4 > f5", "root")
        assert (await agent.run("n", session="f5"))["result"] == "5"
        shown = await agent("frame", id="f4")
        assert (shown["status"], shown["session"], shown["current"]) == ("in_progress", None, "f4")
        bad = await agent("plan", goal="x", children=[{"goals": "y"}])
        assert bad["error"] == "invalid_arguments"


async def test_a_pop_above_running_work_is_refused_unless_it_says_what_becomes_of_it(connect_own, own) -> None:
    """The kernels of all that it takes along end, and each leaves its log."""
    async with connect_own("root") as agent:
        story = await agent("push", goal="story")
        child = await agent("push", goal="child", session="f2")
        await agent.run("print('half')", session="f3")
        refused = await agent("pop", id="f2")
        assert (refused["error"], refused["running"]) == ("frames_running", ["f3"])
        done = await agent("pop", id="f2", children="fail", summary="gave up")
        assert done["failed"] == ["f3"]
        assert [own.sessions.get(one["session"]) for one in (story, child)] == [None, None]
        shown = await agent("frame", id="f3")
        assert (shown["summary"], shown["summary_by"]) == ("failed: child (1 cell, 0 failed)\nwrote: half", "extract")
        assert Path(shown["log"]).is_file()
        await agent("push", goal="another", parent="f1"), await agent("push", goal="below", parent="f4")
        assert (await agent("pop", id="f4", children="adopt"))["adopted"] == ["f5"]
        assert (await agent.run("1 + 1", session="f5"))["result"] == "2"


async def test_invalidation_warns_of_what_runs_and_reopening_brings_back_the_same(connect_own) -> None:
    """F-10: and a frame that was forgotten leaves no file."""
    async with connect_own("root") as agent:
        await agent("plan", goal="story", children=["a", "b"])
        await agent("push", goal="f3")
        told = await agent("frame", id="f2", do="invalidate")
        assert (told["invalidated"], told["still_running"]) == (["f2", "f4"], ["f3"])
        popped = await agent("pop", id="f3", summary="anyway")
        assert (popped["notice"], popped["parent"]) == ("f2 above it was invalidated", "f1")
        assert (await agent("frame", id="f2", do="reopen"))["reopened"] == ["f2", "f4"]
        assert (await agent("frame", do="forget"))["error"] == "invalid_arguments"
        gone = await agent("frame", id="f2", do="forget")
        assert gone == {"forgotten": ["f2", "f3", "f4"]}
        assert not Path(popped["log"]).exists()
        assert (await agent("frame", id="f2"))["error"] == "frame_not_found"


async def test_a_value_that_cannot_go_leaves_the_frame_as_it_is(connect_own) -> None:
    """F-5: what is no variable, what cannot be serialised: an error that names it, and nothing has ended."""
    async with connect_own("root") as agent:
        session = (await agent("push", goal="task"))["session"]
        await agent.run("g = (n for n in [1])", session="f2")
        for name in ("nothing", "g"):
            refused = await agent("pop", id="f2", hand_over=[name])
            assert (refused["error"], repr(name) in refused["message"]) == ("cannot_hand_over", True)
        nowhere = (await agent("pop", id="f2", hand_over=["nothing"]))["message"]
        assert nowhere.endswith(f"session {session!r} of the frame has no such variable")
        assert (await agent("frame", id="f2"))["status"] == "in_progress"
        assert (await agent.run("next(g)", session="f2"))["result"] == "1"


async def test_handed_over_values_are_there_again_after_the_parents_kernel_was_lost(connect_own, own) -> None:
    """They are kept with the frame: a new kernel gets them before its first cell."""
    async with connect_own("root") as agent:
        await agent("push", goal="task")
        await agent.run("found = [1, 2]", session="f2")
        await agent("pop", id="f2", hand_over=["found"])
        assert (await agent.run("found"))["result"] == "[1, 2]"
        await own.sessions.get("root").kernel._drop("")
        assert (await agent.run("found, sorted(frames)"))["result"] == "([1, 2], ['f2'])"


async def test_the_end_of_a_session_blocks_its_goal_and_keeps_what_it_did(connect_own) -> None:
    """It never pops: somebody can go on with the goal, and the log has the cells that went with the session."""
    async with connect_own("root") as agent:
        await agent("push", goal="task")
        await agent.run("print('KEPT')", session="f2")
        await agent("end_session", session="f2")
        shown = await agent("frame", id="f2")
        assert (shown["status"], shown["summary_by"]) == ("blocked", "extract")
        assert "KEPT" in Path(shown["log"]).read_text()
        assert (await agent("push", goal="f2"))["status"] == "in_progress"


@pytest.mark.parametrize("tool", ["end_session", "restart_session"])
async def test_the_session_above_is_not_ended_or_restarted_by_a_frame_that_has_none(connect_own, tool: str) -> None:
    """An agent that tidies up after its pop would delete what every other agent has."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        await agent("push", goal="task")
        await agent("plan", goal="later", parent="f1")
        await agent("pop", id="f2")
        await agent("push", goal="shared", fork=False)
        for frame, status in (("f2", "completed"), ("f3", "planned"), ("f4", "in_progress")):
            refused = await agent(tool, session=frame)
            assert (refused["error"], refused["session"]) == ("invalid_session", "root")
            assert refused["message"].startswith(f"{frame} is {status} and has no session of its own")
        assert (await agent.run("n"))["result"] == "1"
        assert (await agent(tool, session="f1"))["session" if tool == "restart_session" else "ended"] == "root"


async def test_cells_of_the_session_above_are_not_undone_by_a_frame_that_does_not_run_in_it(connect_own) -> None:
    """The cell is another agent's. A running frame that shares the session undoes its own."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        await agent("push", goal="task")
        await agent("plan", goal="later", parent="f1")
        await agent("pop", id="f2")
        for frame in ("f2", "f3"):
            refused = await agent("rollback", session=frame)
            assert (refused["error"], refused["session"]) == ("invalid_session", "root")
        assert (await agent.run("n"))["result"] == "1"
        shared = (await agent("push", goal="shared", fork=False))["frame"]
        await agent.run("n = 2", session=shared)
        assert (await agent("rollback", session=shared))["undone"] == ["n = 2"]


async def test_a_push_that_cannot_fork_leaves_what_was_planned_and_nothing_else(connect_own, own, monkeypatch) -> None:
    """Its error is told. A frame that only this push has made is gone: others would be offered it as work."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        with monkeypatch.context() as patch:
            kernel = own.sessions.get("root").kernel

            async def full(*_: object) -> None:
                raise StoreUnavailable("x", "disk full")

            patch.setattr(kernel, "fork", full)
            assert "disk full" in (await agent("push", goal="task"))["message"]
            assert (await agent("frame", id="f2"))["error"] == "frame_not_found"
            assert (await agent("work", do="next"))["next"] == []
            await agent("plan", goal="task")
            assert "disk full" in (await agent("push", goal="f3"))["message"]
        assert (await agent("frame", id="f3"))["status"] == "planned"
        assert (await agent("push", goal="f3"))["status"] == "in_progress"


async def test_a_pushed_session_is_not_looser_than_the_one_that_it_forks(connect_own) -> None:
    """Its policy is named, never written by an agent."""
    async with connect_own("root", RLM_KERNEL_POLICY="strict") as agent:
        refused = await agent("push", goal="task", policy="default")
        assert refused["error"] == "policy_looser"
        assert (await agent("frame", id="f2"))["error"] == "frame_not_found"


async def test_ids_of_frames_are_no_names_of_sessions(connect) -> None:
    """So a call by such a name cannot open a session in place of the frame that was meant."""
    async with connect("root") as agent:
        assert (await agent("list_vars", session="f7"))["error"] == "frame_not_found"
        assert (await agent("fork_session", name="f7"))["error"] == "invalid_session"


async def test_frames_of_another_place_are_not_told_of(connect, tmp_path) -> None:
    """Ids count over all places: who guesses one learns nothing."""
    async with connect("", cwd=str(tmp_path)) as agent, connect("other") as stranger:
        assert (await agent("plan", goal="secret plan"))["frame"] == "f2"
        await stranger("plan", goal="mine")
        for call in ({"id": "f2"}, {"id": "f2", "do": "forget"}, {"id": "f99"}):
            assert (await stranger("frame", **call))["error"] == "frame_not_found"
        assert (await stranger("push", goal="x", parent="f2"))["error"] == "frame_not_found"
        assert (await stranger("pop", id="f2"))["error"] == "frame_not_found"


async def test_files_that_a_frame_has_written_are_its_artifacts(connect_own) -> None:
    """F-12: found, whoever wrote them; not those from before, hidden ones, or what a link leads to."""
    async with connect_own("root") as agent:
        await agent.run("open('before.txt', 'w').write('x')")
        await agent("push", goal="write", fork=False)
        await agent.run("import os; os.mkdir('d'); open('d/out.txt', 'w').write('y'); open('.hidden', 'w').write('z')")
        scratch = (await agent("status"))["kernel"]["scratch"]
        Path(scratch, "link").symlink_to("before.txt")
        asked = {"id": "f2", "summary": "Written.", "artifacts": ["report"]}
        popped = await agent("pop", **asked)
        shown = await agent("frame", id="f2")
        assert shown["artifacts"] == ["report", f"{scratch}/d/out.txt"]
        await agent.run("open('later.txt', 'w').write('x')")
        assert (await agent("pop", **asked))["summary"] == popped["summary"]
        await agent("push", goal="look on", fork=False)
        await agent("pop", id="f3", summary="Nothing.")
        assert (await agent("frame", id="f3"))["artifacts"] == []


async def test_nothing_is_pushed_or_popped_that_nobody_asked_for(connect_own) -> None:
    """F-14, F-15: whatever runs, is loaded or leaves, the tree has what somebody has asked for, as it was."""
    async with connect_own("root") as agent:
        await agent("load_context", name="log", content="one\ntwo\n")
        for _ in range(3):
            await agent.run("raise ValueError('a new goal?')")
        assert (await agent("frame"))["tree"] == ["f1 in_progress root"]
        await agent("push", goal="task")
        await agent.run("print('done: the task is completed')", session="f2")
        async with connect_own("root") as helper:
            await helper.run("print('done too')", session="f2")
        assert (await agent("frame"))["tree"] == ["f1 in_progress root", "  f2 in_progress task"]


async def test_the_old_names_show_the_same(connect) -> None:
    """F-2, F-3: flame_status and flame_navigate, not listed in core; each answer leads to parent and children."""
    async with connect("root") as agent:
        await agent("plan", goal="story", children=["one", "two"])
        status = await agent("flame_status")
        assert status["tree"] == [
            "f1 in_progress root",
            "  f2 planned story",
            "    f3 planned one",
            "    f4 planned two",
        ]
        for tool in ("flame_navigate", "frame"):
            below = await agent(tool, id="f3")
            assert (below["current"], below["parent"], below["children"]) == ("f3", "f2", [])
            above = await agent(tool, id=below["parent"])
            assert (above["current"], above["parent"], above["children"]) == ("f2", "f1", ["f3", "f4"])
        assert [tool.tier for tool in TOOLS.tools("compat") if tool.name.startswith("flame")] == ["compat", "compat"]


def test_the_tools_of_frames_cost_few_tokens() -> None:
    """400 tokens for the four, 1,400 for all of core. The tokenizer is `rlm_memory.transcripts.tokens`, estimated."""
    tokenizer = Tokens()
    assert tokenizer.label == ESTIMATED
    listed = {
        tool.name: json.dumps(as_listed(tool).model_dump(by_alias=True, exclude_none=True), separators=(",", ":"))
        for tool in TOOLS.tools("core")
    }
    mine = sum(tokenizer.of_text(listed[name]) for name in ("plan", "push", "pop", "frame"))
    assert tokenizer.tokens(mine) <= 400, tokenizer.tokens(mine)
    assert tokenizer.tokens(sum(map(tokenizer.of_text, listed.values()))) <= 1400


async def test_an_idle_session_with_a_goal_rests(connect_own, own: Service, clock) -> None:
    """F-14: a frame that runs goes on when somebody comes back; nothing pops it."""
    async with connect_own("root") as agent:
        await agent("push", goal="task")
        await agent.run("print('before')", session="f2")
        clock.now += 10_000
        ended = await own.sweep()
        assert set(ended) == {"root", "root-f1"}
        shown = await agent("frame", id="f2")
        assert (shown["status"], shown["session"]) == ("in_progress", "root-f1")
        assert (await agent.run("1 + 1", session="f2"))["result"] == "2"
        assert "before" in Path((await agent("pop", id="f2"))["log"]).read_text()


async def test_a_text_that_is_handed_over_is_there_in_the_first_cell(connect_own) -> None:
    """F-5: also if the session above has had no text of that name."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        await agent("push", goal="load it")
        await agent("load_context", name="fresh", content="one\ntwo\n", session="f2")
        await agent("pop", id="f2", hand_over=["fresh"])
        assert (await agent.run("print(fresh['line_count'])"))["stdout"] == "2\n"


async def test_a_frame_that_ends_while_values_are_delivered_is_delivered_too(connect_own, own: Service) -> None:
    """F-5: sub-agents that work side by side pop when they are done."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        for name in ("f2", "f3"):
            pushed = await agent("push", goal="a task", parent="f1")
            assert pushed["frame"] == name, pushed
            await agent.run(f"v_{name} = '{name}'", session=name)
        await agent("pop", id="f2", hand_over=["v_f2"])
        events = own.sessions.get("root").kernel._events
        deliver = type(events).deliver

        async def meanwhile(self, *given, **options) -> None:
            await deliver(self, *given, **options)
            type(events).deliver = deliver
            await agent("pop", id="f3", hand_over=["v_f3"])

        type(events).deliver = meanwhile
        try:
            first = await agent.run("v_f2")
            assert first.get("result") == "'f2'", first
        finally:
            type(events).deliver = deliver
        assert (await agent.run("v_f3"))["result"] == "'f3'"


async def test_the_session_of_a_frame_that_rests_is_forked_and_ended_as_if_it_did_not(connect_own, own, clock) -> None:
    """F-4, F-14: a push forks the nearest session above, and a pop leaves none behind that nobody can end."""
    async with connect_own("root") as agent:
        await agent("push", goal="task")
        await agent("load_context", name="log", content="one\n", session="f2")
        clock.now += 10_000
        assert "root-f1" in await own.sweep()
        pushed = await agent("push", goal="below", parent="f2")
        assert pushed["forked_from"] == "root-f1"
        assert (await agent.run("log['content']", session=pushed["frame"]))["result"] == "'one\\n'"
        await agent("pop", id=pushed["frame"])
        clock.now += 10_000
        assert "root-f1" in await own.sweep()
        await agent("pop", id="f2")
        assert own.sessions.get("root-f1") is None
        assert "root-f1" not in [row.session for row in own.control.resting()]


async def test_a_fork_without_a_goal_keeps_no_session(connect_own, own, clock, isolation) -> None:
    """K-14: only what is worked for outlives idleness; the search over policies found that any fork did."""
    (isolation.config / "policies").mkdir(exist_ok=True)
    (isolation.config / "policies" / "brief.yaml").write_text("extends: default\nreopen: false\n")
    async with connect_own("root", RLM_KERNEL_POLICY="brief") as agent:
        await agent.run("n = 1")
        await agent("fork_session", name="side")
        clock.now += 5000
        await agent.run("n", session="side")
        clock.now += 5000
        assert await own.sweep() == ["root"]
        assert own.control.resting() == []


async def test_what_a_session_with_a_goal_holds_is_kept_until_somebody_ends_it(connect_own) -> None:
    """F-14: as `status` says."""
    async with connect_own("root") as agent:
        await agent("push", goal="task", fork=False)
        assert (await agent("status"))["kept_until"]["texts_and_queries"] is None
        await agent("pop", id="f2")
        assert (await agent("status"))["kept_until"]["texts_and_queries"] is not None


async def test_saved_variables_are_not_undone_by_what_was_handed_over_before(connect_own, own, clock, tmp_path) -> None:
    """F-11: a session that comes back has its variables as they were saved, and what was handed over since."""
    policy = tmp_path / "back.yaml"
    policy.write_text("extends: default\nreopen: true\n")
    async with connect_own("root", RLM_KERNEL_POLICY=str(policy)) as agent:
        for value in (1, 2):
            await agent.run("n = 0")
            frame = (await agent("push", goal=f"find {value}"))["frame"]
            await agent.run(f"v = {value}", session=frame)
            if value == 2:
                clock.now += 10_000
                assert "root" in await own.sweep()
                await agent.run(f"v = {value}", session=frame)
            await agent("pop", id=frame, hand_over=["v"])
            assert (await agent.run("v"))["result"] == str(value)
            await agent.run("v += 10")
        clock.now += 10_000
        assert "root" in await own.sweep()
        assert (await agent.run("v"))["result"] == "12"


async def test_what_came_of_goals_is_there_after_the_session_began_anew(connect_own) -> None:
    """A restart drops variables, not what is known of the frames below."""
    async with connect_own("root") as agent:
        await agent.run("n = 1")
        await agent("push", goal="count")
        await agent("pop", id="f2", summary="Counted.")
        assert (await agent.run("frames['f2']['summary']"))["result"] == "'Counted.'"
        await agent("restart_session")
        assert (await agent.run("frames['f2']['summary']"))["result"] == "'Counted.'"
