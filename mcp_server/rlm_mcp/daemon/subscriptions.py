"""Notifications about changed resources, in both ways that MCP has for them.

A client of 2025 subscribes to single addresses, and is notified on its connection. One of 2026 opens a stream for all
its subscriptions (``subscriptions/listen``). A notification has only the address: the client reads the resource again
if it needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ServerEvent, ToolsListChanged
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from rlm_mcp.client_info import current_handshake
from rlm_mcp.daemon.resources import address_of, nothing_at, part_at
from rlm_mcp.daemon.tool_lists import ToolLists
from rlm_mcp.service.errors import fault_from
from rlm_mcp.service.frames.changes import MOST_FOLLOWED, Part
from rlm_mcp.service.service import Caller, Service

Context = ServerRequestContext[Any]
Leave = Callable[[], None]
_KEY = "rlm-kernel"


class Subscriptions:
    """The handlers of subscription requests; ``caller_of`` returns the caller of a request."""

    def __init__(self, service: Service, caller_of: Callable[[Context], Caller], lists: ToolLists) -> None:
        self._service, self._caller_of, self._lists = service, caller_of, lists

    async def subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        """Notify a client of 2025 of changes to a resource while its connection is open."""
        part = part_at(params.uri)
        if part is None:
            raise nothing_at(params.uri)
        subscriber = _subscriber(context)
        if part not in subscriber.leave:
            if len(subscriber.leave) >= MOST_FOLLOWED:
                raise MCPError(INVALID_PARAMS, f"more than {MOST_FOLLOWED} resources cannot be followed; unsubscribe")
            subscriber.leave[part] = await self._follow(context, [part], subscriber.tell)
        return EmptyResult()

    async def unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        """Stop these notifications."""
        part = part_at(params.uri)
        leave = _subscriber(context).leave.pop(part, None) if part is not None else None
        if leave is not None:
            leave()
        return EmptyResult()

    async def listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Serve one stream of a client of 2026; addresses that do not exist are never notified."""
        wanted = params.notifications.resource_subscriptions or []
        stream = _Stream()
        parts = list({part: None for part in map(part_at, wanted) if part is not None})
        leaves = []
        if parts:
            leaves.append(
                await self._follow(context, parts, lambda part: stream.tell(ResourceUpdated(address_of(part))))
            )
        if params.notifications.tools_list_changed:
            leaves.append(self._lists.follow(current_handshake.get(), lambda: stream.tell(ToolsListChanged())))
        try:
            return await ListenHandler(stream)(context, params)
        finally:
            for leave in leaves:
                leave()

    async def _follow(self, context: Context, parts: list[Part], tell: Callable[[Part], None]) -> Leave:
        caller = self._caller_of(context)
        try:
            async with self._service.session(caller) as session:
                return self._service.frames.follow(session, caller, parts, tell)
        except Exception as error:
            raise MCPError(INVALID_PARAMS, fault_from(error).text) from error


class _Subscriber:
    """A connection of 2025. Changes during a write are notified once, however slowly the client reads."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self.leave: dict[Part, Leave] = {}
        self._changed: dict[Part, None] = {}
        self._told = asyncio.Event()
        self._task = asyncio.create_task(self._notify())

    def tell(self, part: Part) -> None:
        self._changed[part] = None
        self._told.set()

    async def close(self) -> None:
        for leave in self.leave.values():
            leave()
        self._task.cancel()

    async def _notify(self) -> None:
        while True:
            await self._told.wait()
            self._told.clear()
            while self._changed:
                part = next(iter(self._changed))
                del self._changed[part]
                if part in self.leave:
                    await self._session.send_resource_updated(address_of(part))


def _subscriber(context: Context) -> _Subscriber:
    """Return the subscriptions of a connection, which end with it."""
    connection = context.session._connection  # the only place where the SDK keeps state for the lifetime of a client
    found = connection.state.get(_KEY)
    if not isinstance(found, _Subscriber):
        found = connection.state[_KEY] = _Subscriber(context.session)
        connection.exit_stack.push_async_callback(found.close)
    return found


class _Stream:
    """The source of events for the SDK's stream handler."""

    def __init__(self) -> None:
        self._listener: Callable[[ServerEvent], None] | None = None

    def tell(self, event: ServerEvent) -> None:
        if self._listener is not None:
            self._listener(event)

    async def publish(self, event: ServerEvent) -> None:
        """Events are published only by `tell`."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        self._listener = listener

        def leave() -> None:
            self._listener = None

        return leave
