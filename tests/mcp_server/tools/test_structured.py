"""Structured answers: what code asks for with a schema is held against it, whoever answers."""

import secrets

import pytest
from model_endpoint import Reply

from rlm_ipc.session_requests import RestoreSession

pytestmark = pytest.mark.anyio

SCHEMA = "{'type': 'object', 'properties': {'count': {'type': 'integer'}}, 'required': ['count']}"
MODEL = """
from pydantic import BaseModel, field_validator
class Count(BaseModel):
    count: int
    @field_validator('count')
    @classmethod
    def even(cls, value):
        if value % 2:
            raise ValueError('an even number, please')
        return value
"""


@pytest.fixture
async def agent(attach, endpoint, isolation):
    """An agent in a session under the provider mode that admits pydantic, ended afterwards."""
    endpoint.configure(isolation.config, retries=0)
    folder = isolation.config / "policies"
    folder.mkdir(exist_ok=True)
    rules = "extends: default\nlanguage: {imports: {add: [pydantic]}}\nllm: {mode: provider, schema_attempts: 3}\n"
    (folder / "forms.yaml").write_text(rules)
    async with attach(f"s{secrets.token_hex(4)}", RLM_KERNEL_POLICY="forms") as agent:
        yield agent
        await agent("end_session")


async def test_a_provider_is_asked_again_with_what_was_wrong(agent, endpoint) -> None:
    """K-22: the code gets what the JSON says; it is one query, however often it was asked."""
    endpoint.script(Reply("three"), Reply('{"count": "3"}'), Reply('```json\n{"count": 3}\n```'))
    done = await agent.run(f"llm_query('how many?', schema={SCHEMA})['count'] + 1")
    assert done["result"] == "4"
    first, second, third = endpoint.requests
    assert '"required": ["count"]' in first.prompt
    assert second.messages[1]["content"] == "three"
    assert "This does not fit the schema: the answer is not valid JSON" in second.prompt
    assert "'3' is not of type 'integer'" in third.prompt
    assert (await agent("budget"))["calls"]["used"] == 1


async def test_attempts_are_bounded(agent, endpoint) -> None:
    """K-22: as often as the policy says, then the query has failed; a batch goes on with the others."""
    endpoint.reply = lambda asked: Reply('{"count": 1}' if asked.prompt.startswith("one") else "no idea")
    code = f"got = llm_query_batched(['one', 'two'], schema={SCHEMA})\nprint(got)\nllm_query('two', schema={SCHEMA})"
    done = await agent.run(code)
    assert done["stdout"].startswith("[{'count': 1}, '[FAILED:q_001] 3 answers did not fit the schema")
    assert "QueryFailed" in done["error"]
    assert len(endpoint.requests) == 1 + 3 + 3


async def test_a_pydantic_model_has_its_own_say(agent, endpoint) -> None:
    """K-22: an instance comes back; what its validators refuse is asked for again with their words."""
    endpoint.script(Reply('{"count": 3}'), Reply('{"count": 4}'))
    done = await agent.run(MODEL + "got = llm_query('how many?', schema=Count)\nprint(type(got).__name__, got.count)")
    assert (done["error"], done["stdout"]) == (None, "Count 4\n")
    assert "an even number, please" in endpoint.requests[1].prompt
    endpoint.reply = lambda _: Reply('{"count": 5}')
    assert "the answer does not fit the schema" in (await agent.run("llm_query('how many?', schema=Count)"))["error"]


async def test_an_agents_answer_that_does_not_fit_leaves_the_query_pending(agent) -> None:
    """K-22: in deferred mode; the answer may be given as JSON or as its text."""
    asked = await agent.run(f"n, m = [llm_query(p, mode='deferred', schema={SCHEMA}) for p in 'ab']")
    assert asked["pending_llm_queries"][0]["schema"]["required"] == ["count"]
    taken = await agent("answer_queries", answers={"q_000": "three", "q_001": {"count": 7}})
    (failed,) = taken["failed"]
    assert (failed["error"], failed["id"]) == ("answer_does_not_fit", "q_000")
    assert "still pending" in failed["hint"]
    assert (taken["answered"], taken["still_pending"]) == (["q_001"], ["q_000"])
    assert (await agent("answer_queries", answers={"q_000": '{"count": 2}'}))["answered"] == ["q_000"]
    assert (await agent.run("print(n.value['count'], m.value, str(n))"))["stdout"] == "2 {'count': 7} {\"count\": 2}\n"


async def test_code_that_waits_for_an_agent_goes_on_when_the_answer_fits(agent) -> None:
    """K-22: in blocking mode; a model's own validators ask the agent again."""
    waits = await agent.run(MODEL + "print(llm_query('how many?', mode='blocking', schema=Count).count)")
    assert waits["pending_llm_queries"][0]["schema"]["properties"]["count"]["type"] == "integer"
    refused = await agent("answer_queries", answers={"q_000": {"count": "many"}})
    assert refused["failed"][0]["error"] == "answer_does_not_fit"
    again = await agent.answered(q_000={"count": 3})
    assert "an even number, please" in again["pending_llm_queries"][0]["prompt"]
    assert (await agent.answered(q_001={"count": 4}))["stdout"] == "4\n"


async def test_what_is_no_schema_is_an_error_in_the_cell(agent, endpoint) -> None:
    """K-22: nobody is asked."""
    assert "TypeError: schema must be" in (await agent.run("llm_query('p', schema='integer')"))["error"]
    assert "the schema is not valid" in (await agent.run("llm_query('p', schema={'type': 'whole'})"))["error"]
    nested = "s = {}\nfor _ in range(70): s = {'not': s}\nllm_query('p', schema=s)"
    assert "nested too deeply" in (await agent.run(nested))["error"]
    assert endpoint.requests == []


async def test_an_answer_in_json_is_for_a_query_with_a_schema_only(agent) -> None:
    """K-23: any other query takes a text."""
    await agent.run("llm_query('p', mode='deferred')")
    taken = await agent("answer_queries", answers={"q_000": {"count": 1}})
    assert taken["failed"][0]["message"] == 'give either the answer as a text, or {"error": text}'


async def test_a_saved_session_still_knows_what_its_queries_ask_for(agent, live, tmp_path) -> None:
    """K-23: a query with a schema is pending after a restore, and its answer is held against the schema."""
    await agent.run(f"n = llm_query('p', mode='deferred', schema={SCHEMA})")
    session = agent.handshake.env["PARENT_SESSION_ID"]
    saved = await live.save_session(session, tmp_path / "s.rlm", embed=True)
    copy = {"session": f"{session}-copy"}
    await live.restore_session(RestoreSession(session, saved.file, copy["session"], "forms"), agent.handshake)
    taken = await agent("answer_queries", answers={"q_000": "three"}, **copy)
    assert taken["failed"][0]["error"] == "answer_does_not_fit"
    assert (await agent("answer_queries", answers={"q_000": {"count": 2}}, **copy))["answered"] == ["q_000"]
    assert (await agent.run("str(n)", **copy))["result"] == "'{\"count\": 2}'"
    await agent("end_session", **copy)
