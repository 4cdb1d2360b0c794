"""Tools that come with a queue or a lock: listed where there is one, and who was told otherwise is notified."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.subscriptions import ToolsListChanged
from mcp_types import ToolListChangedNotification

from rlm_client.client import call_tool

pytestmark = pytest.mark.anyio
PATIENCE = 60


@pytest.fixture
def project(daemon: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A repository of its own, so a queue of its own."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def names(client: Client) -> list[str]:
    """List the tools that a client is shown."""
    return [tool.name for tool in (await client.list_tools()).tools]


def front() -> Any:
    """Start a front of its own."""
    command = [sys.executable, "-P", "-m", "rlm_mcp.front"]
    return stdio_client(StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ)))


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_come_with_the_first_task_and_the_first_lock(project: Path, mode: Any) -> None:
    """L-6: nobody pays for them before; a plan of an agent's own is no queue. Clients of both eras are told once."""
    told: asyncio.Queue[None] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        if mode == "legacy" and isinstance(message, ToolListChangedNotification):
            told.put_nowait(None)

    async with Client(front(), mode=mode, message_handler=on_message) as client, anyio.create_task_group() as tasks:
        if mode == "auto":

            async def listen(*, task_status: Any) -> None:
                async with client.listen(tools_list_changed=True) as stream:
                    task_status.started()
                    async for event in stream:
                        if isinstance(event, ToolsListChanged):
                            told.put_nowait(None)

            await tasks.start(listen)
        assert {"lock", "work", "handoff"}.isdisjoint(await names(client))
        await asyncio.to_thread(call_tool, "plan", {"goal": "my own"})
        assert {"lock", "work", "handoff"}.isdisjoint(await names(client))
        assert told.empty()
        await asyncio.to_thread(call_tool, "work", {"do": "add", "data": {"goal": "first"}})
        with anyio.fail_after(PATIENCE):
            await told.get()
        assert (await names(client))[-2:] == ["work", "handoff"]
        await asyncio.to_thread(call_tool, "work", {"do": "add", "data": {"goal": "second"}})
        assert (await names(client))[-2:] == ["work", "handoff"]
        assert told.empty()
        await asyncio.to_thread(call_tool, "lock", {})
        with anyio.fail_after(PATIENCE):
            await told.get()
        assert {"lock", "work", "handoff"} <= set(await names(client))
        tasks.cancel_scope.cancel()
