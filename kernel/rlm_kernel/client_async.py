"""The Python client for an event loop: `Client` with methods that are awaited.

::

    from rlm_kernel import AsyncClient

    async with AsyncClient("analysis") as client:
        await client.load_context("log", "app.log")
        found, cell = await asyncio.gather(client.scan("log", "error"), client.eval_code("len(log['lines'])"))

Calls that are made at once do not wait for each other: each has a connection of its own while it lasts. What a call
that is cancelled was doing is interrupted.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from rlm_kernel import client_tools as tools
from rlm_kernel.client_results import Query
from rlm_kernel.connection_async import AsyncControl
from rlm_kernel.dialogue import OnProgress
from rlm_kernel.errors import ToolFailed

__all__ = ["AsyncClient"]

P = ParamSpec("P")
T = TypeVar("T")
_MOST_AT_ONCE = 32
"""Calls of one client that are under way at once; more wait."""


def _method(make: Callable[P, tools.Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return the method that makes a call and reads its answer."""

    @functools.wraps(make)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = make(*args, **kwargs)
        return call.read(await self.call(call.tool, **call.arguments))

    method.__signature__ = tools.signature_of(make)  # type: ignore[attr-defined]  # what inspect reads
    return method


class AsyncClient:
    """A session of the daemon, for one event loop; arguments, results and errors are those of `Client`."""

    def __init__(
        self, session: str | None = None, *, policy: tools.StrPath | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self.session = session
        self.on_progress = on_progress
        self.policy = None if policy is None else os.fspath(policy)
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self._idle: list[AsyncControl] = []

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """Call a tool by name and return its whole answer; arguments that are None are left out.

        A cell that takes longer than one call may is waited for.
        """
        request = tools.Request(tool, arguments)
        async with self._turns:
            connection = await self._connected()
            try:
                answer = None
                while answer is None:
                    answer = request.take(await connection.request("tools/call", request.params, self.on_progress))
            except ToolFailed:
                self._idle.append(connection)
                raise
            except BaseException:
                connection.close()  # which also ends what the call was doing
                raise
            self._idle.append(connection)
            return answer

    async def aclose(self) -> None:
        """Hang up; the session stays. The next call connects again."""
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- texts and variables -------------------------------------------------------------------------

    load_context = _method(tools.load_context)
    peek = _method(tools.peek)
    scan = _method(tools.scan)
    list_vars = _method(tools.list_vars)
    var_info = _method(tools.var_info)
    unload = _method(tools.unload)
    refresh = _method(tools.refresh)
    query = _method(tools.query)
    cite = _method(tools.cite)
    check_citation = _method(tools.check_citation)
    register_handle = _method(tools.register_handle)
    resolve_handle = _method(tools.resolve_handle)

    # --- code and queries ----------------------------------------------------------------------------

    eval_code = _method(tools.eval_code)
    answer_queries = _method(tools.answer_queries)
    wait = _method(tools.wait)
    view_images = _method(tools.view_images)
    budget = _method(tools.budget)
    interrupt = _method(tools.interrupt)

    # --- the session ---------------------------------------------------------------------------------

    status = _method(tools.status)
    fork_session = _method(tools.fork_session)
    rollback = _method(tools.rollback)
    restart_session = _method(tools.restart_session)
    end_session = _method(tools.end_session)

    async def pending_queries(self) -> list[Query]:
        """Return all pending queries with their whole prompts, which the answer about a cell may have to cut."""
        session = self.session or (await self.status())["session"]
        control = await AsyncControl.open("queries", session=session)
        control.close()
        return [Query.read(query) for query in control.reply["queries"]]

    async def _connected(self) -> AsyncControl:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_ended():
                return connection
            connection.close()
        return await AsyncControl.open("mcp", env=tools.environment(self.session, self.policy))
