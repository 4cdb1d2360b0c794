"""An agent of the demonstration: a real MCP client over stdio that counts what passes through its prompt."""

import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from rlm_ipc.messages import JsonObject
from rlm_mcp.errors import RlmMcpError

FORWARDED = (
    *("RLM_KERNEL_RUNTIME_DIR", "RLM_KERNEL_STATE_DIR", "RLM_KERNEL_CONFIG_DIR", "RLM_KERNEL_POLICY"),
    *("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "PYTHONPATH", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"),
)
"""What decides where the daemon is, and where Jupyter finds kernels; a client passes on nothing else."""


class Agent:
    """Calls tools as an agent does, and counts calls and the bytes of arguments and results."""

    def __init__(self, name: str, client: Client, prompt: str) -> None:
        self.name = name
        self.calls = 0
        self.seconds_to_ready = 0.0
        self.prompt_bytes = len(prompt.encode())
        self.traffic_bytes = 0
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> JsonObject:
        """Call `tool` and return its result; a cell that is still running is waited for.

        Raises:
            DemoError: the tool answered with an error, which the message quotes.
        """
        result = await self._call_once(tool, arguments)
        while result.get("status") == "running":
            result = await self._call_once("wait", {"run": result["run"]})
        if result.get("error"):
            raise DemoError(f"{self.name} called {tool} and got {json.dumps(result)[:500]}")
        return result

    async def _call_once(self, tool: str, arguments: JsonObject) -> JsonObject:
        try:
            answer = await self._client.call_tool(tool, arguments)
        except MCPError as error:
            raise DemoError(f"{self.name} called {tool} and got: {error.error.message}") from error
        text = "".join(getattr(block, "text", "") for block in answer.content)
        self.calls += 1
        self.traffic_bytes += len(json.dumps(arguments).encode()) + len(text.encode())
        result: JsonObject = json.loads(text)
        return result


class DemoError(RlmMcpError):
    """The demonstration met something that it did not expect; run `rlm-kernel doctor`."""


def environment(session: str) -> dict[str, str]:
    """Return what a client passes to its server: where the daemon is, and the session of the parent agent."""
    kept = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    return kept | {"PARENT_SESSION_ID": session}


@asynccontextmanager
async def connected(name: str, session: str, prompt: str = "", cwd: Path | None = None) -> AsyncIterator[Agent]:
    """Start `rlm-kernel mcp` as a client's configuration does, and yield the agent that talks to it."""
    command = ["-P", "-m", "rlm_mcp", "mcp"]
    server = StdioServerParameters(command=sys.executable, args=command, env=environment(session), cwd=cwd)
    started = time.perf_counter()
    async with Client(stdio_client(server)) as client:
        agent = Agent(name, client, prompt)
        agent.seconds_to_ready = time.perf_counter() - started
        yield agent
