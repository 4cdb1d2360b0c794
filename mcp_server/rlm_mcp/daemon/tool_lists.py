"""The lists of tools that clients see, and notifications of changes: a queue and a lock add tools."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp_types import ListToolsResult, ToolAnnotations
from mcp_types import Tool as McpTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from rlm_mcp.client_info import ClientInfo, current_handshake
from rlm_mcp.service.service import Service
from rlm_mcp.service.sessions.policies import policy_for
from rlm_mcp.tools.arguments import Tier
from rlm_mcp.tools.catalogue import TOOLS
from rlm_mcp.tools.registry import TIERS, Tool
from rlm_sandbox.errors import PolicyError
from rlm_sandbox.policy import load_policy

_KEY = "rlm-kernel tools"
_OF_QUEUES = ("work", "handoff")
_SMALL: Tier = "core"


class ToolLists:
    """The lists of tools of all clients."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def listed(self, context: ServerRequestContext[Any]) -> ListToolsResult:
        """List the tools for a client. The small tier has those of a queue or lock only if there is one."""
        client = current_handshake.get()
        tier = await asyncio.to_thread(_tier_for, client)
        tools = TOOLS.tools(tier)
        if tier == _SMALL:
            named = self._service.work.tree_for(client, None)
            has_lock, has_queue = self._service.lock.is_known(named), self._service.work.has_queue(named)
            if has_lock:
                tools += [tool for tool in TOOLS.tools("all") if tool.name == "lock"]
            if has_queue:
                tools += [tool for tool in TOOLS.tools("all") if tool.name in _OF_QUEUES]
            # Clients of 2026 listen if they care.
            if not (has_lock and has_queue) and context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                self._await(context, client)
        return ListToolsResult(tools=[as_listed(tool) for tool in tools])

    def follow(self, client: ClientInfo, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` when the client's list changes. Return a function that ends this."""
        named = self._service.work.tree_for(client, None)
        begins = (self._service.work.beginnings, self._service.lock.projects.beginnings)
        leaves = [each.when(named, told) for each in begins]

        def leave() -> None:
            for each in leaves:
                each()

        return leave

    def _await(self, context: ServerRequestContext[Any], client: ClientInfo) -> None:
        """Notify a client of 2025 on its connection when its queue or its lock begins."""
        connection = context.session._connection  # like `rlm_mcp.daemon.subscriptions`
        if _KEY in connection.state:
            return
        begun = asyncio.Event()
        leave = self.follow(client, begun.set)

        async def notify() -> None:
            while True:
                await begun.wait()
                begun.clear()
                with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await context.session.send_tool_list_changed()

        task = connection.state[_KEY] = asyncio.create_task(notify())

        async def close() -> None:
            leave()
            task.cancel()

        connection.exit_stack.push_async_callback(close)


@functools.cache
def as_listed(tool: Tool) -> McpTool:
    """Return a tool as in `tools/list`; cached, because clients ask often and all get the same."""
    annotations = ToolAnnotations(read_only_hint=True) if tool.read_only else None
    return McpTool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=annotations)


def _tier_for(handshake: ClientInfo) -> Tier:
    """Return the tier for a client: from its environment, else from its policy."""
    wanted = handshake.env.get("RLM_KERNEL_TOOLS")
    if wanted in TIERS:
        return wanted
    try:
        return load_policy(policy_for(handshake)).tools
    except PolicyError:
        return _SMALL  # each call reports what is wrong with the policy
