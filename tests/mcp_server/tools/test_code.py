"""eval_code, wait and deferred queries on real kernels."""

import asyncio
import json
import re
import secrets

import pytest
from waiting import SECONDS, until

pytestmark = pytest.mark.anyio


async def test_the_sample_of_the_seed_finds_its_error(agent) -> None:
    """K-15: success, stdout, stderr, error, time, queries and defined variables."""
    await agent("load_context", name="test_data", content="line 1\nERROR: test\nline 3")
    code = "errors = [line for line in test_data['lines'] if 'ERROR' in line]\nprint(f'Found {len(errors)} errors')"
    answer = await agent.run(code)
    assert answer.pop("execution_time_seconds") >= 0
    assert answer == {
        "success": True,
        "stdout": "Found 1 errors\n",
        "stderr": "",
        "error": None,
        "pending_llm_queries": [],
        "defined_variables": ["errors"],
    }


async def test_a_context_is_a_mapping_with_the_documented_keys(agent) -> None:
    """K-16: lines, content, line_count, size, type and metadata."""
    await agent("load_context", name="log", content="a\nb", content_type="log", metadata={"path": "p"})
    code = "(log['content'], list(log['lines']), log['line_count'], log['size'], log['type'], log['metadata'])"
    assert (await agent.run(code))["result"] == "('a\\nb', ['a', 'b'], 2, 3, 'log', {'path': 'p'})"


async def test_variables_persist_and_are_listed_beside_contexts(agent) -> None:
    """K-17, K-4: the next call sees them; so do list_vars, peek, scan and var_info."""
    await agent("load_context", name="log", content="a\nb")
    await agent.run("my_data = [1, 2, 3, 4, 5]\nwords = 'one\\ntwo\\nthree'")
    assert (await agent.run("print(sum(my_data))"))["stdout"] == "15\n"
    listed = {row["name"]: row for row in (await agent("list_vars"))["variables"]}
    assert set(listed) == {"log", "my_data", "words"}
    assert (listed["my_data"]["type"], listed["my_data"]["line_count"]) == ("list", 5)
    assert (await agent("peek", name="words", offset=1, limit=1))["content"] == "two"
    assert (await agent("scan", name="words", pattern="T"))["matches"] == 2
    assert (await agent("scan", name="words", pattern="("))["error"] == "invalid_regex"
    assert (await agent("var_info", name="my_data"))["preview"] == "[1, 2, 3, 4, 5]"
    gone = await agent("peek", name="nothing")
    assert gone["error"] == "variable_not_found"
    assert set(gone["available"]) == {"log", "my_data", "words"}


async def test_a_kernel_variable_becomes_a_context_and_can_be_deleted(agent) -> None:
    """K-1, K-6: load_context takes a variable; unload takes any name."""
    await agent.run("rows = ['a', 'b', 'ERROR c']")
    assert (await agent("load_context", name="kept", variable="rows"))["line_count"] == 3
    assert await agent("unload", name="rows") == {"unloaded": "rows"}
    assert "NameError" in (await agent.run("rows"))["error"]
    assert (await agent("scan", name="kept", pattern="error"))["results"][0]["line"] == 2


async def test_an_error_is_a_traceback_that_ends_with_it(agent) -> None:
    """K-15: a failing cell is an answer of the tool, not a failure of it."""
    answer = await agent.run("print('before')\n1/0")
    assert not agent.is_error
    assert (answer["success"], answer["stdout"]) == (False, "before\n")
    assert answer["error"].endswith("ZeroDivisionError: division by zero")
    assert "\x1b" not in answer["error"]


async def test_what_code_displays_is_in_the_answer(agent) -> None:
    """K-15: in order, beside what it prints; the last value stays the result, though the same was displayed before."""
    answer = await agent.run("display('a', {'b': 1})\nprint('c')\ndisplay(5)\n5")
    assert (answer["displayed"], answer["stdout"], answer["result"]) == (["'a'", "{'b': 1}", "5"], "c\n", "5")
    assert "displayed" not in await agent.run("5")
    batch = await agent("eval_code", cells=["display(1)", "2"])
    assert [cell.get("displayed") for cell in batch["cells"]] == [["1"], None]


async def test_memory_that_is_not_there_is_told_once_with_the_limit(agent) -> None:
    """The error has no message of its own; what to do takes its place."""
    error = (await agent.run("bytearray(1 << 45)"))["error"]
    assert "MemoryError: The session may hold 512 MiB" in error
    assert error.count("MemoryError") == 1


async def test_a_variable_whose_lines_do_not_fit_into_memory_says_so(agent) -> None:
    """K-18: the limit and what to do about it are told, as in a cell."""
    await agent.run("rows = [0.5] * 20_000_000")
    answer = await agent("peek", name="rows", limit=1)
    assert agent.is_error
    assert "MemoryError: The session may hold 512 MiB" in answer["message"]


async def test_an_unclosed_bracket_is_named(agent) -> None:
    """K-18: a cell is whole, so what is missing in it is said as for a file, on every Python."""
    assert (await agent.run("x = (1"))["error"].endswith("SyntaxError: '(' was never closed")


@pytest.mark.parametrize("code", ["x = (1", "eval('1')", "import subprocess", "raise ValueError(' a\\nb ')"])
async def test_an_error_is_told_once(agent, code) -> None:
    """K-18: whatever stands in front of the message, the message is not repeated."""
    error = (await agent.run(code))["error"]
    kinds = ("SyntaxError:", "CellRefused:", "ImportRefused:", "ValueError:")
    assert sum(error.count(kind) for kind in kinds) == 1


async def test_a_failing_cell_with_a_long_answer_is_a_preview(agent) -> None:
    """K-19: output and error of a cell without a result are cut like any other."""
    answer = await agent.run("print('o' * 9000)\nraise ValueError('v' * 9000)")
    assert answer["success"] is False
    assert answer["error"].endswith("v")
    assert answer["stderr"] == ""
    assert answer["full_output"] == "out_1"


async def test_loading_and_unloading_reach_the_kernel(agent) -> None:
    """K-6: what is unloaded is no global any more; what is loaded again is the new text."""
    await agent.run("1")
    await agent("load_context", name="log", content="first")
    assert (await agent.run("log['content']"))["result"] == "'first'"
    await agent("load_context", name="log", content="second")
    assert (await agent.run("log['content']"))["result"] == "'second'"
    await agent("unload", name="log")
    assert "NameError" in (await agent.run("log"))["error"]


async def test_a_long_output_is_a_preview_and_all_of_it_is_kept(agent) -> None:
    """K-19: at most 8,000 characters, head and tail; the whole is a context under the name it tells."""
    answer = await agent.run("for n in range(20000): print('line', n)")
    assert len(agent.text) <= 8000
    assert answer["stdout"].startswith("line 0\n")
    assert answer["stdout"].endswith("line 19999\n")
    assert (await agent("peek", name=answer["full_output"], offset=12345, limit=1))["content"] == "line 12345"
    code = f"{answer['full_output']}['line_count']"
    assert (await agent.run(code))["result"] == "20000"


async def test_output_over_a_megabyte_is_cut_with_a_marker_and_kept_whole(agent) -> None:
    """K-19: 2 MB are printed; the answer is short, and nothing is lost."""
    answer = await agent.run("for _ in range(21000): print('y' * 99)")
    assert len(agent.text) <= 8000
    whole = await agent("var_info", name=answer["full_output"])
    assert whole["line_count"] == 21_000
    assert whole["size"] == 2_100_000


async def test_an_automatic_name_never_hides_a_variable_of_code(agent) -> None:
    """K-17: out_N steps aside for a name that code has taken."""
    await agent.run("out_1 = 'mine'")
    answer = await agent.run("print('x\\n' * 9000)")
    assert answer["full_output"] != "out_1"
    assert (await agent.run("out_1"))["result"] == "'mine'"


async def test_a_call_does_not_block_longer_than_it_may(agent) -> None:
    """K-18: then it tells the run, and wait goes on with it; texts answer meanwhile."""
    await agent("load_context", name="log", content="a\nb")
    answer = await agent("eval_code", code=f"print('begun', flush=True)\n{agent.HELD}print('done')\n42")
    assert answer["status"] == "running"
    assert answer["run"].startswith("r")
    assert f"wait(run='{answer['run']}')" in answer["hint"]
    assert (await agent("peek", name="log"))["returned"] == 2
    assert (await agent("scan", name="log", pattern="b"))["matches"] == 1
    assert "code is running" in (await agent("list_vars"))["note"]
    await agent.let_go()
    answer = await agent.finished(answer)
    assert (answer["stdout"], answer["result"]) == ("begun\ndone\n", "42")
    assert await agent("wait") == answer  # the latest run, asked for again


async def test_progress_is_reported_while_a_call_waits(agent) -> None:
    """K-18: a client that asked for progress hears that its call is alive."""
    heard = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append((value, message))

    await agent("eval_code", code=agent.HELD)
    async with asyncio.timeout(60):
        while len(heard) < 2:  # a machine that is busy may miss the moment in one call
            heard.clear()
            await agent.client.call_tool("wait", {}, progress_callback=progress)
    assert heard == sorted(heard)
    assert "is running" in heard[-1][1]
    await agent.let_go()
    assert (await agent.finished(await agent("wait")))["success"]


async def test_a_cancelled_call_interrupts_its_cell(agent, live) -> None:
    """K-18: who stops waiting stops the work; the variables are still there."""
    await agent.run("kept = 1")
    session = live.sessions.get(agent.handshake.env["PARENT_SESSION_ID"])
    call = asyncio.create_task(agent("eval_code", code="while True: pass"))
    async with asyncio.timeout(SECONDS):
        await until(lambda: [run for run in live.runs.active(session) if run.state == "running"])
        call.cancel()
        await until(lambda: not session.kernel.busy)
    assert (await agent.run("kept"))["result"] == "1"


async def test_interrupt_stops_what_runs_and_what_waits(agent) -> None:
    """K-18: both runs end at once; variables stay."""
    await agent.run("kept = 1")
    running = await agent("eval_code", code="while True: pass")
    queued = await agent("eval_code", code="kept = 2")
    assert "the run waits for other code" in queued["hint"]
    stopped = await agent("interrupt")
    assert stopped["interrupted"] == [running["run"], queued["run"]]
    assert "CellInterrupted" in (await agent.finished(await agent("wait", run=running["run"])))["error"]
    assert (await agent.finished(queued))["error"] == "interrupted"
    assert (await agent.run("kept"))["result"] == "1"


async def test_code_that_waited_for_other_code_is_told_so(agent) -> None:
    """Agents that share a session learn that it runs one cell at a time, for whose code, and what runs side by side."""
    first = await agent("eval_code", code=f"kept = 1\n{agent.HELD}")
    second = await agent("eval_code", code="second = 'x' * 1000")
    third = await agent("eval_code", code="third = 1")
    assert "push copies" in second["hint"]
    assert "push makes" not in first["hint"]
    await agent.let_go()
    assert "notice" not in await agent.finished(first)
    told = (await agent.finished(second))["notice"]
    assert re.fullmatch(rf"waited \d+\.\d s for run {first['run']} \(kept = 1\) in the same session: push .*", told)
    told = (await agent.finished(third))["notice"]
    assert f"for run {first['run']} (kept = 1) and 1 more in the same session: push" in told
    assert "notice" not in await agent.run("after = 1")


async def test_reads_answer_while_a_cell_runs(agent) -> None:
    """K-17: the cell would run for a minute, and none of them waits for it: it still runs after the last one."""
    await agent("load_context", name="log", content="alpha\nERROR beta")
    await agent.run("mine = 1")
    running = await agent("eval_code", code="while True: pass")
    assert running["status"] == "running"
    assert (await agent("peek", name="log", limit=1))["content"] == "alpha"
    assert [row["line"] for row in (await agent("scan", name="log", pattern="error"))["results"]] == [1]
    assert (await agent("var_info", name="log"))["line_count"] == 2
    assert "log" in [row["name"] for row in (await agent("list_vars"))["variables"]]
    assert (await agent("interrupt"))["interrupted"] == [running["run"]]
    assert "CellInterrupted" in (await agent.finished(await agent("wait", run=running["run"])))["error"]


async def test_a_run_belongs_to_its_session(agent, attach) -> None:
    """K-11: another session cannot wait for it; unknown runs are told with the active ones."""
    answer = await agent("eval_code", code=agent.HELD)
    async with attach("elsewhere") as other:
        assert (await other("wait", run=answer["run"]))["error"] == "run_not_found"
        told = await other("wait")
        assert (told["error"], told["hint"]) == ("run_not_found", "call eval_code to start one")
    missing = await agent("wait", run="r0")
    assert (missing["error"], missing["active"]) == ("run_not_found", [answer["run"]])
    await agent.let_go()
    await agent.finished(answer)


async def test_agents_of_one_session_take_turns(agent, attach) -> None:
    """K-17: three agents at once, one namespace, no cell lost."""
    await agent.run("total = 0")

    async def add(n: int) -> None:
        async with attach(agent.handshake.env["PARENT_SESSION_ID"]) as helper:
            assert (await helper.run(f"total += {n}"))["success"]

    await asyncio.gather(*(add(n) for n in range(1, 4)))
    assert (await agent.run("total"))["result"] == "6"


async def test_a_deferred_query_is_answered_and_the_next_cell_goes_on(agent) -> None:
    """K-22, K-23: pending, answered, and then the same object is the answer."""
    answer = await agent.run("summary = llm_query('Summarize', model='flash')\nprint(summary)")
    assert answer["stdout"] == "[DEFERRED:q_000] LLM query queued\n"
    assert answer["pending_llm_queries"] == [{"id": "q_000", "prompt": "Summarize", "model": "flash"}]
    taken = await agent("answer_queries", answers={"q_000": "All good"})
    assert taken == {"answered": ["q_000"], "failed": [], "still_pending": []}
    assert (await agent.run("print(summary, llm_answers)"))["stdout"] == "All good {'q_000': 'All good'}\n"


async def test_ids_are_never_used_twice(agent) -> None:
    """K-22: not in the next call, and not after a restart of the kernel."""
    ids = []
    for step in ("x", "restart", "x"):
        if step == "restart":
            await agent("restart_session")
        answer = await agent.run("llm_query_batched(['a', 'b'])")
        ids += [query["id"] for query in answer["pending_llm_queries"]]
    assert ids == [f"q_{n:03d}" for n in range(6)]


async def test_one_failed_query_does_not_fail_the_batch(agent) -> None:
    """K-23: each item of a batch is answered, failed or refused on its own."""
    await agent.run("notes = llm_query_batched(['a', 'b', 'c'])")
    taken = await agent("answer_queries", answers={"q_000": "A", "q_001": {"error": "no quota"}, "q_777": "?"})
    assert taken["answered"] == ["q_000", "q_001"]
    assert [(row["id"], row["error"]) for row in taken["failed"]] == [("q_777", "query_not_found")]
    assert taken["still_pending"] == ["q_002"]
    again = await agent("answer_queries", answers=[{"id": "q_000", "answer": "B"}, {"id": "q_002", "answer": "C"}])
    assert [row["error"] for row in again["failed"]] == ["already_resolved"]
    printed = (await agent.run("print(*notes, sep='|')"))["stdout"]
    assert printed == "A|[FAILED:q_001] no quota|C\n"


async def test_answers_given_while_a_cell_runs_are_there_in_the_next(agent) -> None:
    """K-23: answering never waits for running code."""
    await agent.run("note = llm_query('a')")
    running = await agent("eval_code", code=agent.HELD)
    assert running["status"] == "running"
    assert (await agent("answer_queries", answers={"q_000": "A"}))["answered"] == ["q_000"]
    await agent.let_go()
    await agent.finished(running)
    assert (await agent.run("str(note)"))["result"] == "'A'"


async def test_queries_asked_by_tool_reach_the_code_too(agent) -> None:
    """K-22: the compat tools answer with status deferred; their answers are in llm_answers."""
    asked = await agent("llm_query", prompt="p", model="flash")
    assert (asked["status"], asked["prompt"], asked["model"]) == ("deferred", "p", "flash")
    batch = await agent("llm_query_batched", prompts=["a", "b"])
    ids = [asked["id"], *(row["id"] for row in batch["queries"])]
    assert len(set(ids)) == 3
    assert (await agent("status"))["pending_llm_queries"] == ids
    await agent("answer_queries", answers={name: name.upper() for name in ids})
    code = "print(sorted(llm_answers.values()))"
    assert json.loads((await agent.run(code))["stdout"].replace("'", '"')) == sorted(map(str.upper, ids))


async def test_a_resolved_handle_is_a_global_of_the_other_session(agent, attach) -> None:
    """K-9: the var_name can be used in code."""
    await agent("load_context", name="log", content="a\nb")
    handle = (await agent("register_handle", name="log", share_with=["*"]))["handle"]
    async with attach(f"s{secrets.token_hex(4)}") as other:
        await other.run("log = 'mine'")
        name = (await other("resolve_handle", handle=handle))["var_name"]
        assert name == "log_2"
        assert (await other.run(f"({name}['line_count'], log)"))["result"] == "(2, 'mine')"
        await other("end_session")


async def test_scan_flags_work_on_what_code_made(attach) -> None:
    """K-3, K-25: a list in the kernel is searched with the same flags."""
    async with attach("flags") as agent:
        await agent.run("made = ['Alpha', 'alphabet', 'beta']")
        found = await agent("scan", name="made", pattern="alpha", flags=["word"])
        assert [match["line"] for match in found["results"]] == [0]
        found = await agent("scan", name="made", pattern="alpha", flags=["case", "invert"], start_line=1)
        assert [match["line"] for match in found["results"]] == [2]


async def test_code_cites_what_is_loaded(attach) -> None:
    """Ours: the same citation as the tool's; a variable that code made has none."""
    async with attach("citing") as agent:
        await agent("load_context", name="log", content="a\nb\nc")
        assert (await agent.run("cite('log', '1-2')['text']"))["result"] == repr("b\nc")
        assert (await agent.run("cite('log', 1)['hash']"))["result"] == repr(
            (await agent("cite", name="log", lines=1))["hash"]
        )
        assert "name of a loaded context" in str((await agent.run("cite('x', 1)"))["error"])


async def test_an_answer_says_that_no_checkpoint_holds_its_cell(agent) -> None:
    """While a thread runs: with the number of cells that a crash would lose, and why; status tells it too."""
    spin = (
        "import threading\ndef spin():\n    while not stop: pass\nstop = False\nthreading.Thread(target=spin).start()"
    )
    told = (await agent.run(spin))["checkpoint"]
    assert told["age"] == 1
    assert "a thread of the session is running (Thread-1 (spin))" in told["reason"]
    assert (await agent("status"))["kernel"]["checkpoint"] == told
    await agent.run("stop = True")
    await until(lambda: agent("status"), lambda status: status["kernel"]["checkpoint"] is True)
    assert "checkpoint" not in await agent.run("1")
