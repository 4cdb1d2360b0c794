"""MCP sampling: the client's own model answers what code waits for, in both protocols, if the policy says so."""

import asyncio
import json
import os
import secrets
from contextlib import asynccontextmanager

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, TextContent

from rlm_mcp.client_info import ClientInfo, current_handshake
from rlm_mcp.daemon.mcp_server import build_server

pytestmark = pytest.mark.anyio

VERSIONS = ["legacy", "auto"]
BATCH = "first = llm_query('one')\nprint(first, llm_query_batched(['two', 'three']))"


class Model:
    """The client's model: it says what ``says`` does, and keeps what it was asked."""

    def __init__(self):
        self.asked = []
        self.says = lambda prompt: prompt.upper()

    async def __call__(self, context, params):
        prompt = params.messages[0].content.text
        self.asked.append(prompt)
        return CreateMessageResult(role="assistant", content=TextContent(text=self.says(prompt)), model="own")


@pytest.fixture
def model():
    return Model()


@pytest.fixture
def connected(live, isolation):
    """Connect a client with a model of its own, and give what calls a tool by its name."""

    @asynccontextmanager
    async def connect(mode, model, *, sampling=True):
        folder = isolation.config / "policies"
        folder.mkdir(exist_ok=True)
        rules = f"extends: default\nllm: {{mode: blocking, sampling: {str(sampling).lower()}}}\n"
        (folder / "sampled.yaml").write_text(rules)
        env = {"PARENT_SESSION_ID": f"s{secrets.token_hex(4)}", "RLM_KERNEL_POLICY": "sampled"}
        current_handshake.set(ClientInfo(cwd="", env=env, pid=os.getpid()))
        async with Client(build_server(live), mode=mode, sampling_callback=model) as client:

            async def call(tool, **arguments):
                result = await client.call_tool(tool, arguments)
                answer = json.loads(result.content[0].text)
                async with asyncio.timeout(60):
                    while answer.get("status") == "running":
                        answer = await call("wait", run=answer["run"])
                return answer

            yield call
            await call("end_session")

    return connect


@pytest.mark.parametrize("mode", VERSIONS)
async def test_the_clients_own_model_answers_while_the_call_goes_on(connected, model, mode) -> None:
    """K-22: one call of the agent; the code is run once, whatever the protocol makes of the questions."""
    async with connected(mode, model) as call:
        done = await call("eval_code", code=f"count = 1\n{BATCH}")
        assert (done["success"], done["stdout"]) == (True, "ONE ['TWO', 'THREE']\n")
    assert sorted(model.asked) == ["one", "three", "two"]


@pytest.mark.parametrize("mode", VERSIONS)
async def test_without_the_policy_or_the_offer_the_agent_is_asked(connected, model, mode) -> None:
    """K-22: it is nobody's default."""
    async with connected(mode, model, sampling=False) as call:
        assert (await call("eval_code", code="llm_query('p')"))["status"] == "waiting"
    async with connected(mode, None) as call:
        assert (await call("eval_code", code="llm_query('p')"))["status"] == "waiting"
    assert model.asked == []


@pytest.mark.parametrize("mode", VERSIONS)
async def test_a_schema_holds_for_the_clients_model_too(connected, model, mode) -> None:
    """K-22: it is told the schema; what it cannot do is the agent's to answer."""
    code = "llm_query('p', schema={'type': 'integer'}) + 1"
    async with connected(mode, model) as call:
        model.says = lambda _: "41"
        assert (await call("eval_code", code=code))["result"] == "42"
        assert '{"type": "integer"}' in model.asked[0]
        model.says = lambda _: "many"
        waits = await call("eval_code", code=code)
        assert waits["status"] == "waiting"
        (query,) = waits["pending_llm_queries"]
        model.says = lambda _: "1"
        assert (await call("answer_queries", answers={query["id"]: 6}))["result"] == "7"


async def test_a_client_that_refuses_leaves_it_to_the_agent(connected) -> None:
    """K-22: its person may have said no."""

    async def refuse(context, params):
        raise MCPError(-1, "no")

    async with connected("legacy", refuse) as call:
        assert (await call("eval_code", code="llm_query('p')"))["status"] == "waiting"
