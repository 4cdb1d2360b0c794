"""Programs of the first Context Kernel: they know its documentation and nothing else.

Each agent is a client of its own over stdio, whose server process finds the session in its environment. There is no
policy file and no argument of ours: `RLM_KERNEL_TOOLS=compat` is all that the client's configuration says.
"""

import json
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

SkillMcp = Callable[..., Awaitable[str]]
"""``skill_mcp(tool_name, arguments)``: the arguments are JSON, and so is the text that comes back."""
StartAgent = Callable[[str], AbstractAsyncContextManager[SkillMcp]]
SubAgent = Callable[[SkillMcp, str], Awaitable[Any]]
SNIPPETS = Path(__file__).with_name("snippets")


@pytest.fixture
def start_agent(daemon: Path) -> StartAgent:
    """Start an agent in the session of that name, with its own connection to the skill's server."""

    @asynccontextmanager
    async def start(session: str) -> AsyncIterator[SkillMcp]:
        environment = {**os.environ, "RLM_KERNEL_TOOLS": "compat", "PARENT_SESSION_ID": session}
        server = StdioServerParameters(command=str(daemon), args=["mcp"], env=environment)
        async with Client(stdio_client(server)) as client:

            async def skill_mcp(tool_name: str, arguments: str = "{}", mcp_name: str = "context_kernel") -> str:
                assert mcp_name == "context_kernel"
                result = await client.call_tool(tool_name, json.loads(arguments))
                (block,) = result.content
                return block.text  # type: ignore[union-attr]

            yield skill_mcp

    return start


@pytest.fixture
def session() -> str:
    return f"ses_{secrets.token_hex(4)}"


@pytest.fixture
async def skill_mcp(start_agent: StartAgent, session: str) -> AsyncIterator[SkillMcp]:
    """Give the tools to the root agent of a session, and end the session after the test."""
    async with start_agent(session) as skill_mcp:
        yield skill_mcp
        await skill_mcp("end_session")


@pytest.fixture
def call_omo_agent(start_agent: StartAgent, session: str) -> Callable[..., Awaitable[Any]]:
    """Run a sub-agent: it gets a prompt, and works in the session of its parent by a connection of its own."""

    async def call(program: SubAgent, prompt: str) -> Any:
        async with start_agent(session) as skill_mcp:
            return await program(skill_mcp, prompt)

    return call


@pytest.fixture(scope="session")
def snippet() -> Callable[[str], str]:
    """Give code as the documentation writes it: what stands in a template literal has its backslashes doubled."""

    def read(name: str) -> str:
        return (SNIPPETS / f"{name}.txt").read_text().replace("\\\\", "\\")

    return read
