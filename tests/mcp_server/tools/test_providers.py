"""Queries that a configured model answers: the cell waits in its frame, the daemon asks a real endpoint over HTTP."""

import asyncio
import json
import secrets

import psutil
import pytest
from model_endpoint import Reply
from model_endpoint import code as block
from waiting import until

from rlm_memory import queries

pytestmark = pytest.mark.anyio


@pytest.fixture
def policy(isolation):
    """Write a policy of the provider mode and name it: ``policy("limits: {queries: 2}", "cache: true")``."""

    def write(more="", llm="wait_seconds: 60", extends="default"):
        name = f"p{secrets.token_hex(4)}"
        folder = isolation.config / "policies"
        folder.mkdir(exist_ok=True)
        text = f"extends: {extends}\nllm: {{mode: provider, modes: [deferred, blocking], {llm}}}\n{more}\n"
        (folder / f"{name}.yaml").write_text(text)
        return name

    return write


@pytest.fixture
async def provided(attach, endpoint, isolation, policy):
    """Open a session whose queries the endpoint answers, under a policy; it is ended afterwards."""
    endpoint.configure(isolation.config, retries=0)
    opened = []

    async def start(name=None):
        client = attach(f"s{secrets.token_hex(4)}", RLM_KERNEL_POLICY=name or policy())
        agent = await client.__aenter__()
        opened.append((client, agent))
        return agent

    yield start
    for client, agent in reversed(opened):
        await agent("end_session")
        await client.__aexit__(None, None, None)


async def test_the_cell_has_its_answers_in_one_call(provided, endpoint) -> None:
    """K-22: a question, one that is made of its answer, and a batch; nothing is left for the agent to answer."""
    agent = await provided()
    code = """
kind = llm_query('what?')
notes = llm_query_batched([f'{kind} {n}' for n in range(3)])
print(type(kind) is str, kind, notes)
"""
    done = await agent.run(code)
    expected = "True echo: what? ['echo: echo: what? 0', 'echo: echo: what? 1', 'echo: echo: what? 2']\n"
    assert (done["stdout"], done["pending_llm_queries"]) == (expected, [])
    assert endpoint.requests[0].prompt == "what?"
    assert (await agent("status"))["pending_llm_queries"] == []


async def test_a_failed_item_fails_itself_and_a_failed_query_raises(provided, endpoint) -> None:
    """K-23: the others have their answers; the error says what the endpoint said."""
    endpoint.reply = lambda asked: Reply("too long", status=400) if "bad" in asked.prompt else Reply("fine")
    agent = await provided()
    done = await agent.run("print(llm_query_batched(['a', 'bad', 'c']))\nllm_query('bad')")
    where = endpoint.url.removeprefix("http://").removesuffix("/v1")
    assert done["stdout"].startswith(f"['fine', '[FAILED:q_001] scripted of {where} refuses this request: too long")
    assert f"QueryFailed: [FAILED:q_003] scripted of {where} refuses this request" in done["error"]


async def test_each_call_chooses_among_the_modes_that_are_permitted(provided, attach, policy, endpoint) -> None:
    """K-22: and a policy that does not name the provider keeps every prompt on the machine."""
    agent = await provided()
    deferred = await agent.run("later = llm_query('p', mode='deferred')\nprint(later, llm_query('q'))")
    assert deferred["stdout"] == "[DEFERRED:q_000] LLM query queued echo: q\n"
    assert [row["id"] for row in deferred["pending_llm_queries"]] == ["q_000"]
    waits = await agent.run("llm_query('r', mode='blocking')")
    assert (waits["status"], waits["pending_llm_queries"][0]["id"]) == ("waiting", "q_002")
    assert (await agent("answer_queries", answers={"q_002": "R"}))["answered"] == ["q_002"]
    async with attach(f"s{secrets.token_hex(4)}") as other:
        refused = await other.run("llm_query('secret', mode='provider')")
        assert "PermissionError: the session's policy does not permit mode='provider'" in refused["error"]
        await other("end_session")
    assert [asked.prompt for asked in endpoint.requests] == ["q"]


async def test_without_a_configuration_the_error_says_what_to_do(provided, isolation) -> None:
    """K-22: the cell ends where it asked."""
    agent = await provided()
    (isolation.config / "models.yaml").unlink()
    done = await agent.run("llm_query('p')")
    assert "no language model is configured; set RLM_KERNEL_MODEL" in done["error"]


async def test_code_names_a_configured_model(provided) -> None:
    """K-22: one that is not configured cannot be asked."""
    agent = await provided()
    done = await agent.run("print(llm_query('p', model='test'))\nllm_query('p', model='gpt-9')")
    assert done["stdout"] == "echo: p\n"
    assert "no model 'gpt-9' is configured; configured are test" in done["error"]


async def test_the_clock_of_the_cell_stands_still_while_the_provider_works(provided, policy, endpoint) -> None:
    """K-18: slow answers cost nothing of cell_seconds, and the call tells that it goes on."""
    endpoint.reply = lambda _: Reply("late", delay=2.5)
    agent = await provided(policy("limits: {cell_seconds: 2.0}"))
    assert (await agent.run("llm_query('p')"))["result"] == "'late'"


@pytest.mark.parametrize("how", ["interrupt", "too late"])
async def test_what_nobody_waits_for_any_more_is_withdrawn(provided, policy, endpoint, live, how) -> None:
    """K-23: an interrupted or late wait cancels the request; the next cell asks anew."""
    endpoint.reply = lambda asked: Reply("quick") if asked.prompt == "next" else Reply("never", delay=60)
    agent = await provided(policy(llm="wait_seconds: 3" if how == "too late" else "wait_seconds: 60"))
    running = asyncio.create_task(agent.run("llm_query_batched(['a', 'b'])"))
    await until(lambda: len(endpoint.requests) == 2 or running.done())
    if how == "interrupt":
        await agent("interrupt")
        assert "CellInterrupted" in (await running)["error"]
    else:
        assert "[FAILED:q_000] nobody answered q_000 within 3 s" in (await running)["result"]
    session = agent.handshake.env["PARENT_SESSION_ID"]
    await until(
        lambda: {row.state for row in queries.of_session(live._store, live.sessions.get(session).key)} == {"cancelled"}
    )
    await until(lambda: endpoint.at_once == 0)
    assert (await agent.run("llm_query('next')"))["result"] == "'quick'"


async def test_the_next_daemon_asks_again_what_its_predecessor_had_not_answered(
    connect_own, own, reopen, policy, endpoint, isolation
) -> None:
    """K-23: the cell goes on waiting while no daemon is there, and has its answer in the end."""
    endpoint.configure(isolation.config)
    endpoint.script(Reply("lost", delay=60))
    rules = policy()
    async with connect_own("s", RLM_KERNEL_POLICY=rules) as agent:
        await agent.run("1")
        own.runs.start(own.sessions.get("s"), "got = llm_query('p')")
        await until(lambda: len(endpoint.requests) == 1)
    await own.providers.aclose()
    async with reopen() as connect, connect("s", RLM_KERNEL_POLICY=rules) as agent:
        await until(lambda: len(endpoint.requests) == 2)
        assert (await agent.run("got"))["result"] == "'echo: p'"


async def test_a_daemon_that_ends_has_handed_in_what_had_come(connect_own, own, policy, endpoint, isolation) -> None:
    """K-23: it goes once that is done, though it hands in only now and then; what had not come is given up."""
    endpoint.configure(isolation.config)
    endpoint.reply = lambda asked: Reply("never", delay=60) if asked.prompt == "c" else Reply("yes", tokens=(1, 1))
    async with connect_own("s", RLM_KERNEL_POLICY=policy()) as agent:
        await agent.run("1")
        session = own.sessions.get("s")
        own.runs.start(session, "llm_query_batched(['a', 'b', 'c'])")
        await until(lambda: len(endpoint.requests) == 3 and own.budgets.used(session).tokens == 4)
        await own.providers.aclose()
        assert [task for task in asyncio.all_tasks() if "Providers." in repr(task.get_coro())] == []
        assert [row.answer for row in queries.of_session(own._store, session.key)] == ["yes", "yes", None]


async def test_nothing_is_asked_any_more_for_a_session_that_has_ended(provided, endpoint, isolation) -> None:
    """Requests that are under way are broken off, and those that wait for their turn never leave."""
    endpoint.configure(isolation.config, retries=0, concurrency=1)
    endpoint.reply = lambda _: Reply("never", delay=60)
    agent = await provided()
    running = asyncio.create_task(agent.run("llm_query_batched(['a', 'b'])"))
    await until(lambda: endpoint.at_once == 1)
    await agent("end_session")
    await running
    await until(lambda: endpoint.at_once == 0)
    assert [asked.prompt for asked in endpoint.requests] == ["a"]


async def test_a_kernel_that_dies_while_the_provider_works_is_replaced(provided, policy, endpoint) -> None:
    """K-18, K-23: the request is given up, variables are as before, ids go on."""
    endpoint.script(Reply("never", delay=60))
    agent = await provided(policy("checkpoint: strict"))
    await agent.run("kept = 'yes'")
    running = asyncio.create_task(agent.run("kept = 'no'\nllm_query('p')"))
    await until(lambda: len(endpoint.requests) == 1)
    psutil.Process((await agent("status"))["kernel"]["pid"]).kill()
    died = await running
    assert (died["error"], died["cancelled_llm_queries"]) == ("kernel_died", ["q_000"])
    assert (await agent.run("kept, llm_query('q')"))["result"] == "('yes', 'echo: q')"


async def test_a_forked_session_asks_its_own(provided, attach, endpoint) -> None:
    """K-22: its queries and its budget are not its parent's."""
    agent = await provided()
    await agent.run("llm_query('parent')")
    fork = (await agent("fork_session"))["session"]
    async with attach(fork) as other:
        assert (await other.run("print(llm_query('child'), llm_answers['q_001'])"))[
            "stdout"
        ] == "echo: child echo: child\n"
        assert (await other("budget"))["calls"]["used"] == 1
        await other("end_session")
    assert (await agent.run("sorted(llm_answers)"))["result"] == "['q_000']"


async def test_a_fork_under_a_looser_policy_is_refused(attach, policy, endpoint, isolation) -> None:
    """K-28: what may not leave the machine may not leave it through a fork."""
    endpoint.configure(isolation.config)
    async with attach(f"s{secrets.token_hex(4)}") as agent:
        await agent.run("1")
        refused = await agent("fork_session", policy=policy())
        assert "llm.mode: provider, where the other does not have it" in refused["fields"]
        await agent("end_session")


async def test_answers_belong_to_the_cell_that_asked(provided, live) -> None:
    """K-23: the journal has each cell's queries with the answers that they got."""
    agent = await provided()
    await agent.run("llm_query('one')")
    await agent.run("llm_query_batched(['two', 'three'])")
    record = await live.record(agent.handshake.env["PARENT_SESSION_ID"])
    asked = [[(query.prompt, query.answer) for query in cell.queries] for cell in record.cells]
    assert asked == [[("one", "echo: one")], [("two", "echo: two"), ("three", "echo: three")]]


# --- budgets --------------------------------------------------------------------------------------


async def test_code_and_agents_read_the_budget(provided, policy, endpoint, isolation) -> None:
    """K-22: what has been used and what may be, alike in both places."""
    endpoint.configure(isolation.config, input_price=1000.0, output_price=2000.0)
    endpoint.reply = lambda _: Reply("a", tokens=(30, 10))
    agent = await provided(policy("limits: {queries: 7, query_tokens: 500, query_cost: 2.5}"))
    told = (await agent.run("import json\nllm_query_batched(['x', 'y'])\nprint(json.dumps(budget()))"))["stdout"]
    tool = await agent("budget")
    for said in (json.loads(told), tool):
        assert said["calls"] == {"used": 2, "limit": 7}
        assert said["tokens"] == {"used": 80, "limit": 500}
        assert said["cost"] == {"used": 0.1, "limit": 2.5}
        assert 0 < said["seconds"]["used"] < said["seconds"]["limit"] == 3600


@pytest.mark.parametrize(
    ("limits", "said"),
    [("query_tokens: 60", "60 tokens"), ("query_cost: 0.06", "0.06 cost"), ("query_seconds: 2.0", "2 seconds")],
)
async def test_a_budget_that_is_used_up_is_an_error_in_the_cell(
    provided, policy, endpoint, isolation, limits, said
) -> None:
    """K-22: nothing further is asked, what was answered is kept, and the next cell runs."""
    endpoint.configure(isolation.config, concurrency=1, input_price=1000.0, output_price=1000.0)
    endpoint.reply = lambda _: Reply("a", delay=0.7, tokens=(30, 10))
    agent = await provided(policy(f"limits: {{{limits}}}"))
    done = await agent.run("llm_query_batched(['one', 'two', 'three', 'four', 'five'])")
    assert "BudgetExceeded" in done["error"]
    assert said in done["error"]
    asked = len(endpoint.requests)
    assert asked < 5
    again = await agent.run("print(llm_answers['q_000'])\nllm_query('more')")
    assert (again["stdout"], "BudgetExceeded" in again["error"]) == ("a\n", True)
    assert len(endpoint.requests) == asked


async def test_a_batch_that_is_too_large_asks_nothing(provided, policy, endpoint) -> None:
    """K-22: all or none."""
    agent = await provided(policy("limits: {queries: 3}"))
    done = await agent.run("llm_query_batched(['a', 'b', 'c', 'd'])")
    assert "QueryLimit" in done["error"]
    assert (endpoint.requests, (await agent("budget"))["calls"]["used"]) == ([], 0)


# --- the cache ------------------------------------------------------------------------------------


async def test_what_was_answered_before_is_not_asked_again(provided, policy, endpoint) -> None:
    """K-22: in any session whose policy says so, and only for the same prompt to the same model in the same form."""
    endpoint.reply = lambda asked: Reply(f"{asked.prompt} {len(endpoint.requests)}")
    agent = await provided(policy(llm="cache: true"))
    assert (await agent.run("llm_query('p'), llm_query('p'), llm_query('q')"))["result"] == "('p 1', 'p 1', 'q 2')"
    other = await provided(policy(llm="cache: true"))
    assert (await other.run("llm_query('p'), llm_query('p', model='test')"))["result"] == "('p 1', 'p 3')"
    without = await provided()
    assert (await without.run("llm_query('p')"))["result"] == "'p 4'"


async def test_an_agents_answer_is_given_again_too(provided, policy) -> None:
    """K-23: in deferred mode the next cell finds it, without anybody having to answer."""
    agent = await provided(policy(llm="cache: true"))
    await agent.run("llm_query('p', mode='deferred')")
    await agent("answer_queries", answers={"q_000": "P"})
    asked = await agent.run("again = llm_query('p', mode='deferred')")
    assert asked["pending_llm_queries"] == []
    assert (await agent.run("str(again)"))["result"] == "'P'"


# --- rlm_query ------------------------------------------------------------------------------------


def works(asked):
    """Answer as a child that submits what it finds in its copy of the session."""
    if asked.messages[0]["role"] != "system":
        return Reply("plain")
    if "Nothing has been run yet" in asked.prompt:
        return block("print(len(words), task['content'])")
    return block("mine = llm_query(task['content'])", "answer.update(content=f'{len(words)} {mine}', ready=True)")


async def test_a_model_works_on_its_own_in_a_fork_of_the_session(provided, policy, endpoint, live) -> None:
    """K-22: two turns and a query of the child; the parent waits in its frame, keeps its variables and pays for all."""
    endpoint.reply = works
    agent = await provided(policy("checkpoint: strict"))
    await agent.run("words = ['a', 'b']")
    done = await agent.run("got = rlm_query('Count.')\nprint(got, 'mine' in dir())")
    assert (done["stdout"], done["pending_llm_queries"]) == ("2 plain False\n", [])
    assert [asked.prompt[:6] for asked in endpoint.requests] == ["Count.", "Output", "Count."]
    assert "2 Count." in endpoint.requests[1].prompt
    spent = (await agent("budget"))["tokens"]["used"]
    used = [reply_tokens(asked) for asked in endpoint.requests]
    assert spent == sum(used) > 0
    assert [session.id for session in live.sessions if "-f" in session.id] == []


def reply_tokens(asked):
    """Count what the endpoint counts for a request and its answer."""
    return sum(works(asked).used(asked))


async def test_children_work_at_once_and_one_that_fails_fails_alone(provided, policy, endpoint) -> None:
    """K-23: a batch, with an endpoint that refuses one of them."""
    endpoint.reply = lambda asked: Reply("no", status=400) if "bad" in str(asked.messages) else works(asked)
    agent = await provided(policy("checkpoint: strict"))
    await agent.run("words = 'abc'")
    done = await agent.run("got = rlm_query_batched(['x', 'bad', 'z'])\nprint(got[0], got[2])\nprint(got[1])")
    where = endpoint.url.removeprefix("http://").removesuffix("/v1")
    assert done["stdout"].startswith(f"3 plain 3 plain\n[FAILED:q_001] scripted of {where} refuses this request: no")


@pytest.mark.parametrize(("depth", "plain"), [(0, "plain"), (1, "3 plain"), (2, "3 3 plain")])
async def test_depth_is_the_policys(provided, endpoint, policy, depth, plain) -> None:
    """Beyond limits.query_depth it is answered as llm_query is."""

    def reply(asked):
        if asked.messages[0]["role"] != "system":
            return Reply("plain")
        return block("answer.update(content='3 ' + rlm_query('deeper'), ready=True)")

    endpoint.reply = reply
    agent = await provided(policy(f"limits: {{query_depth: {depth}}}"))
    assert (await agent.run("print(rlm_query('first'))"))["stdout"] == f"{plain}\n"


async def test_a_child_cannot_spend_more_than_its_parent_may(provided, endpoint, policy) -> None:
    """The budget is one for all; what goes beyond is an error in the cell that asked first."""
    endpoint.reply = lambda _: block("llm_query('more')")
    agent = await provided(policy("limits: {query_tokens: 2000}"))
    done = await agent.run("rlm_query('spend')")
    assert "BudgetExceeded" in done["error"]
    assert len(endpoint.requests) < 30


async def test_an_interrupted_cell_takes_its_child_along(provided, endpoint, live) -> None:
    """Its session ends, and nothing more is asked."""
    endpoint.reply = lambda _: Reply("late", delay=30)
    agent = await provided()
    running = asyncio.create_task(agent.run("rlm_query('slow')"))
    await until(lambda: endpoint.requests)
    await agent("interrupt")
    assert "KeyboardInterrupt" in (await running)["error"]
    await until(lambda: not [session for session in live.sessions if "-f" in session.id])


async def test_an_agent_sees_that_a_query_wants_a_session_of_its_own(attach) -> None:
    """K-23: in the other modes it is the agent's to give it to whom it likes."""
    async with attach("s-agents-recursion") as agent:
        done = await agent.run("later = rlm_query('think')\nllm_query('say')")
        asked = done["pending_llm_queries"]
        assert [query.get("recursive") for query in asked] == [True, None]
        await agent("answer_queries", answers={asked[0]["id"]: "thought"})
        assert (await agent.run("print(later)"))["stdout"] == "thought\n"
        await agent("end_session")
