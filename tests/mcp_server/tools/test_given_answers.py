"""Answers that code gives itself, by assigning to ``llm_answers``, and answers in a list."""

import secrets

import psutil
import pytest
from waiting import until

pytestmark = pytest.mark.anyio

ASK = "notes = llm_query_batched(['one', 'two', 'three'])"


async def pending(agent) -> list[str]:
    return (await agent("status"))["pending_llm_queries"]


async def shown(agent, code: str) -> str:
    """What code prints; it ended well and nothing was said beside it."""
    done = await agent.run(code)
    assert (done["success"], "notice" in done) == (True, False), done
    return str(done["stdout"])


async def test_a_list_that_code_assigns_answers_the_pending_queries(agent) -> None:
    """K-23: as the first programs do it; the list stays as it was written, the placeholders are the answers."""
    await agent.run(ASK)
    assert "notice" not in await agent.run('llm_answers = ["A", "B", "C"]')
    assert await pending(agent) == []
    read = "for i, answer in enumerate(llm_answers): print(i, answer)\nprint([str(note) for note in notes])"
    assert await shown(agent, read) == "0 A\n1 B\n2 C\n['A', 'B', 'C']\n"
    await agent.run("more = llm_query('four')")
    await agent("answer_queries", answers={"q_003": "D"})
    assert await shown(agent, "print(llm_answers)") == "{'q_000': 'A', 'q_001': 'B', 'q_002': 'C', 'q_003': 'D'}\n"


async def test_a_tuple_and_answers_that_are_computed_are_taken_too(agent) -> None:
    """K-23: a cell may ask and answer at once."""
    await agent.run(ASK + "\nllm_answers = tuple(prompt.upper() for prompt in ['a', 'b', 'c'])")
    assert await pending(agent) == []
    assert await shown(agent, "print([str(note) for note in notes], llm_answers)") == (
        "['A', 'B', 'C'] ('A', 'B', 'C')\n"
    )


async def test_a_mapping_by_id_answers_some_and_leaves_the_others(agent) -> None:
    """K-23: llm_answers then has every answer by id."""
    await agent.run(ASK)
    await agent("answer_queries", answers={"q_000": "A"})
    assert "notice" not in await agent.run("llm_answers = {'q_002': 'C'}")
    assert await pending(agent) == ["q_001"]
    assert await shown(agent, "print(llm_answers, notes[2])") == "{'q_000': 'A', 'q_002': 'C'} C\n"
    assert "notice" not in await agent.run("llm_answers = {**llm_answers, 'q_001': 'B'}")
    assert await pending(agent) == []
    assert await shown(agent, "print(llm_answers['q_000'], notes[1])") == "A B\n"


@pytest.mark.parametrize("code", ["llm_answers['q_001'] = 'B'", "llm_answers.update(q_001='B')"])
async def test_an_answer_that_is_put_in_is_taken(agent, code) -> None:
    """K-23: the same dict, without an assignment."""
    await agent.run(ASK)
    assert "notice" not in await agent.run(code)
    assert await pending(agent) == ["q_000", "q_002"]
    assert await shown(agent, "print(notes[1], llm_answers)") == "B {'q_001': 'B'}\n"


@pytest.mark.parametrize("answers", ["['A', 'B']", "['A', 'B', 'C', 'D']", "[]"])
async def test_a_list_of_the_wrong_length_answers_nothing_and_is_kept(agent, answers) -> None:
    """K-23: one line says what to give; the answers that there were are shown as before."""
    await agent.run("first = llm_query('zero')")
    await agent("answer_queries", answers={"q_000": "Z"})
    await agent.run(ASK)
    said = (await agent.run(f"llm_answers = {answers}"))["notice"]
    count = len(eval(answers))
    assert said.startswith(
        f"llm_answers: {count} answers for 3 pending queries (q_001, q_002, q_003), so none was stored"
    )
    assert "\n" not in said
    assert await pending(agent) == ["q_001", "q_002", "q_003"]
    assert await shown(agent, "print(llm_answers, refused_llm_answers)") == f"{{'q_000': 'Z'}} {answers}\n"
    assert "notice" not in await agent.run("llm_answers = ['A', 'B', 'C']")
    assert await pending(agent) == []


async def test_unknown_ids_are_told_and_the_known_ones_are_taken(agent) -> None:
    """K-23: nothing of what was given is lost."""
    await agent.run(ASK)
    said = (await agent.run("llm_answers = {'q_000': 'A', 'q_009': 'X'}"))["notice"]
    assert said.startswith("llm_answers: q_009: ")
    assert "answered: q_000" in said
    assert await pending(agent) == ["q_001", "q_002"]
    assert await shown(agent, "print(llm_answers, refused_llm_answers['q_009'])") == "{'q_000': 'A'} X\n"
    put = await agent.run("llm_answers['q_008'] = 'Y'")
    assert put["notice"].startswith("llm_answers: q_008: ")
    assert await shown(agent, "print(llm_answers)") == "{'q_000': 'A', 'q_008': 'Y'}\n"


@pytest.mark.parametrize("value", ["5", "'abc'", "{1, 2, 3}", "[object(), 'B', 'C']", "{1: 'A'}", "['A', None, 'C']"])
async def test_what_is_no_answer_is_told_and_kept(agent, value) -> None:
    """K-23: a value of any kind may be assigned, and no object's own code is asked what it is."""
    await agent.run(ASK)
    said = await agent.run(f"mine = {value}\nllm_answers = mine")
    assert said["success"]
    assert said["notice"].startswith("llm_answers: ")
    assert "q_001" in await pending(agent)
    assert await shown(agent, "print(refused_llm_answers is mine)") == "True\n"


async def test_without_a_pending_query_it_is_a_variable_like_any_other(agent) -> None:
    """K-17: whatever code puts there."""
    for value in ("['a', 'b']", "{'x': 1}", "7"):
        assert await shown(agent, f"llm_answers = {value}") == ""
        assert await shown(agent, "print(llm_answers)") == f"{value}\n"
    assert await shown(agent, "del llm_answers") == ""
    assert await shown(agent, "print(llm_answers)") == "{}\n"


async def test_a_failed_item_and_an_item_by_id_stand_in_a_list_too(agent) -> None:
    """K-23: what answer_queries takes, code may assign."""
    await agent.run(ASK)
    await agent.run(
        "llm_answers = [{'error': 'cannot'}, {'id': 'q_002', 'answer': 'C'}, {'id': 'q_001', 'answer': 'B'}]"
    )
    assert await pending(agent) == []
    assert await shown(agent, "print([str(note) for note in notes])") == "['[FAILED:q_000] cannot', 'B', 'C']\n"


async def test_an_answer_has_the_form_that_was_asked_for(agent) -> None:
    """K-22: as with answer_queries, a value that does not fit leaves its query pending."""
    await agent.run("n = llm_query('how many?', schema={'type': 'integer'})")
    said = await agent.run("llm_answers = ['many']")
    assert said["notice"].startswith("llm_answers: q_000: ")
    assert await pending(agent) == ["q_000"]
    await agent.run("llm_answers = [3]")
    assert await shown(agent, "print(n.value + 1)") == "4\n"


async def test_a_list_may_be_of_the_last_cells_queries(agent) -> None:
    """K-23: whoever reads only the answer of the last cell answers what stands there."""
    await agent.run("old = llm_query('old')")
    await agent.run(ASK)
    assert "notice" not in await agent.run("llm_answers = ['A', 'B', 'C']")
    assert await pending(agent) == ["q_000"]
    assert (await agent("answer_queries", answers=["O"]))["answered"] == ["q_000"]


async def test_an_error_after_the_assignment_takes_nothing_back(agent) -> None:
    """K-23: what was assigned was assigned."""
    await agent.run(ASK)
    assert not (await agent.run("llm_answers = ['A', 'B', 'C']\n1 / 0"))["success"]
    assert await pending(agent) == []


async def test_a_list_survives_a_killed_kernel(attach, isolation) -> None:
    """K-18: the copy that takes over has it too."""
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    (folder / "kept.yaml").write_text("extends: default\ncheckpoint: strict\n")
    async with attach(f"s{secrets.token_hex(4)}", RLM_KERNEL_POLICY="kept") as agent:
        await agent.run(ASK)
        await agent.run("llm_answers = ['A', 'B', 'C']")
        assert await shown(agent, "print(notes[0])") == "A\n"
        pid = (await agent("status"))["kernel"]["pid"]
        psutil.Process(pid).kill()
        # A cell that comes sooner dies with it.
        await until(lambda: agent("status"), lambda told: told["kernel"].get("pid") not in {pid, None})
        assert await shown(agent, "print(llm_answers[0], notes[0])") == "A A\n"
        await agent("end_session")


async def test_a_person_answers_in_a_notebook(agent) -> None:
    """K-28: by a cell of a front end, as by one of the agent's."""
    await agent.run(ASK)
    client = await agent.front_end()
    try:
        await client.execute_interactive("llm_answers = ['A', 'B', 'C']", timeout=60)
    finally:
        client.stop_channels()
    await until(lambda: pending(agent), lambda told: not told)
    assert await shown(agent, "print([str(note) for note in notes])") == "['A', 'B', 'C']\n"


# --- the tool -------------------------------------------------------------------------------------


async def test_the_tool_takes_a_list_in_order(agent) -> None:
    """K-23: texts, errors, and items that name their query."""
    await agent.run(ASK)
    items = ["A", {"error": "cannot"}, {"id": "q_002", "answer": "C"}]
    assert (await agent("answer_queries", answers=items))["answered"] == ["q_000", "q_001", "q_002"]
    assert await shown(agent, "print([str(note) for note in notes])") == "['A', '[FAILED:q_001] cannot', 'C']\n"


async def test_the_tool_refuses_a_list_of_the_wrong_length_whole(agent) -> None:
    """K-23: nobody can know which was meant."""
    await agent.run(ASK)
    refused = await agent("answer_queries", answers=["A"])
    assert (refused["error"], agent.is_error) == ("wrong_number", True)
    assert "1 answers for 3 pending queries (q_000, q_001, q_002)" in refused["message"]
    assert await pending(agent) == ["q_000", "q_001", "q_002"]


async def test_a_list_answers_a_cell_that_waits(agent) -> None:
    """K-23: which then goes on."""
    waits = await agent.run("print(llm_query_batched(['one', 'two'], mode='blocking'))")
    assert waits["status"] == "waiting"
    done = await agent.finished(await agent("answer_queries", answers=["A", "B"]))
    assert done["stdout"] == "['A', 'B']\n"


async def test_queries_that_a_tool_asked_are_answered_in_order_too(agent) -> None:
    """K-22: those of tools and those of code stand in one list, as they were asked."""
    await agent("llm_query", prompt="by tool")
    await agent.run("mine = llm_query('by code')")
    assert await pending(agent) == ["q_t000", "q_000"]
    assert (await agent("answer_queries", answers=["T", "C"]))["answered"] == ["q_t000", "q_000"]
    assert await shown(agent, "print(mine, llm_answers['q_t000'])") == "C T\n"


async def test_what_a_tool_asks_counts_for_the_code_that_runs_next(attach, tmp_path) -> None:
    """K-22: the kernel is told before its next cell, and refuses what goes beyond the limit itself."""
    rules = tmp_path / "two.yaml"
    rules.write_text("extends: default\nlimits: {queries: 2}\n")
    async with attach(f"s{secrets.token_hex(4)}", RLM_KERNEL_POLICY=str(rules)) as agent:
        await agent.run("kept = llm_query('by code')")
        await agent("llm_query", prompt="by tool")
        assert "QueryLimit: this session may ask only 2 queries" in (await agent.run("llm_query('one more')"))["error"]
        assert await pending(agent) == ["q_000", "q_t000"]
        await agent("end_session")


async def test_a_wrong_number_is_told_with_the_queries_that_wait(agent) -> None:
    """K-23: the first six by name, and how many of them the last cell has asked."""
    await agent.run("old = llm_query('old')")
    await agent.run("notes = llm_query_batched(['one', 'two'])")
    refused = await agent("answer_queries", answers=["A"])
    assert refused["message"] == (
        "1 answers for 3 pending queries (q_000, q_001, q_002),"
        " 2 of them from the last cell that asked, so none was stored"
    )
    await agent.run("more = llm_query_batched(['three', 'four', 'five'])")
    refused = await agent("answer_queries", answers=["A"])
    assert refused["message"] == (
        "1 answers for 6 pending queries (q_000, q_001, q_002, q_003, q_004, q_005), "
        "3 of them from the last cell that asked, so none was stored"
    )
    await agent.run("last = llm_query('six')")
    refused = await agent("answer_queries", answers=["A", "B"])
    assert refused["message"] == (
        "2 answers for 7 pending queries (q_000, q_001, q_002, q_003, q_004, q_005 and 1 more), "
        "1 of them from the last cell that asked, so none was stored"
    )


async def test_of_many_answers_that_are_not_taken_three_are_told(agent) -> None:
    """K-23: and how many more there are."""
    await agent.run("asked = llm_query_batched(list('abcde'))")
    said = (await agent.run("llm_answers = {f'q_{n:03d}': n for n in range(3)}"))["notice"]
    assert (said.count("give either the answer"), " more" in said) == (3, False)
    said = (await agent.run("llm_answers = {f'q_{n:03d}': n for n in range(5)}"))["notice"]
    assert (said.count("give either the answer"), "; and 2 more; answered: none" in said) == (3, True)


@pytest.mark.parametrize(
    ("item", "named", "said"),
    [
        (None, "q_000", "there is no answer; the query is still pending"),
        ({"id": "q_000"}, "q_000", "give either the answer"),
        ({"answer": "A", "error": "no"}, "q_000", "give either the answer"),
        ({"error": 5}, "q_000", "give either the answer"),
        ({}, "q_000", "give either the answer"),
        (["A"], "q_000", "give either the answer"),
        ({"id": 5, "answer": "A"}, "answers[0]", "an item is"),
        ({"id": "x" * 100}, "x" * 80, "give either the answer"),
        ({"id": "x" * 100, "answer": "A"}, "x" * 80, f"no query '{'x' * 80}' in"),
    ],
)
async def test_an_item_that_is_no_answer_leaves_its_query_pending(agent, item, named, said) -> None:
    """K-23: with what is wrong; the query takes a right one afterwards."""
    await agent.run("asked = llm_query('p')")
    (failed,) = (await agent("answer_queries", answers=[item]))["failed"]
    assert failed["id"] == named
    assert said in failed["message"]
    assert await pending(agent) == ["q_000"]
    taken = await agent("answer_queries", answers=[{"answer": "A", "error": None}])
    assert (taken["answered"], taken["failed"]) == (["q_000"], [])


async def test_an_empty_object_is_an_answer_to_who_asks_for_one(agent) -> None:
    """K-23: in a list as by its id."""
    await agent.run("both = [llm_query(p, schema={'type': 'object'}) for p in 'ab']")
    assert (await agent("answer_queries", answers=[{}, {"answer": {}}]))["answered"] == ["q_000", "q_001"]
    assert await shown(agent, "print([one.value for one in both])") == "[{}, {}]\n"
