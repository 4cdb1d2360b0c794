"""The Python client for an event loop: `Client` with methods that are awaited.

::

    from rlm_client import AsyncClient

    async with AsyncClient("analysis") as client:
        await client.load_context("log", "app.log")
        found, cell = await asyncio.gather(client.scan("log", "error"), client.eval_code("len(log['lines'])"))

Concurrent calls do not wait for each other: each has its own connection. A cancelled call interrupts its code.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from rlm_client import calls, representations
from rlm_client.results import Popped, Pushed, Query
from rlm_ipc.daemon_connection_async import AsyncDaemonConnection
from rlm_ipc.daemon_dialogue import OnProgress
from rlm_ipc.daemon_requests import McpServed, ServeMcp
from rlm_ipc.errors import KernelError, ToolFailed
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.session_requests import ListQueries

__all__ = ["AsyncClient", "AsyncGoal", "AsyncPush"]

P = ParamSpec("P")
T = TypeVar("T")
_MOST_AT_ONCE = 32
"""The most concurrent calls of one client; more calls wait."""


def _method(make: Callable[P, calls.Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return the method that makes a call and reads its answer."""

    @functools.wraps(make)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = make(*args, **kwargs)
        return call.read(await self.call(call.tool, **call.arguments))

    method.__signature__ = calls.signature_of(make)  # type: ignore[attr-defined]  # what inspect reads
    return method


class AsyncClient:
    """A session of the daemon, for one event loop; arguments, results and errors are those of `Client`."""

    def __init__(
        self, session: str | None = None, *, policy: calls.StrPath | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self._name = calls.new_name()
        self.session = session
        self.on_progress = on_progress
        self.policy: str | None = None if policy is None else os.fspath(policy)
        self._turns = asyncio.Semaphore(_MOST_AT_ONCE)
        self._idle: list[AsyncDaemonConnection[McpServed]] = []
        self._busy: set[AsyncDaemonConnection[McpServed]] = set()

    def __repr__(self) -> str:
        return representations.shown(type(self).__name__, self.session, self.policy)

    def _repr_html_(self) -> str:
        return representations.shown_html(self.session, self.policy)

    async def call(self, tool: str, /, **arguments: Any) -> JsonObject:
        """Call a tool by name and return its whole answer; arguments that are None are left out.

        If a cell takes longer than one call may, the method continues to wait.
        """
        request = calls.ToolCall(tool, arguments)
        async with self._turns:
            connection = await self._connected()
            self._busy.add(connection)
            try:
                answer = None
                while answer is None:
                    answer = request.take(await connection.request("tools/call", request.params, self.on_progress))
            except ToolFailed:
                self._idle.append(connection)
                raise
            except BaseException:
                connection.close()  # this also interrupts the call's code
                raise
            finally:
                self._busy.discard(connection)
            self._idle.append(connection)
            return answer

    async def aclose(self) -> None:
        """Close the connection; the session is kept. The next call connects again."""
        for connection in self._busy:
            connection.close()
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- texts and variables -------------------------------------------------------------------------

    load_context: Final = _method(calls.load_context)
    peek: Final = _method(calls.peek)
    scan: Final = _method(calls.scan)
    list_vars: Final = _method(calls.list_vars)
    var_info: Final = _method(calls.var_info)
    unload: Final = _method(calls.unload)
    refresh: Final = _method(calls.refresh)
    query: Final = _method(calls.query)
    cite: Final = _method(calls.cite)
    check_citation: Final = _method(calls.check_citation)
    register_handle: Final = _method(calls.register_handle)
    resolve_handle: Final = _method(calls.resolve_handle)

    # --- code and queries ----------------------------------------------------------------------------

    eval_code: Final = _method(calls.eval_code)
    pipeline: Final = _method(calls.pipeline)
    answer_queries: Final = _method(calls.answer_queries)
    wait: Final = _method(calls.wait)
    view_images: Final = _method(calls.view_images)
    budget: Final = _method(calls.budget)
    interrupt: Final = _method(calls.interrupt)

    # --- goals ---------------------------------------------------------------------------------------

    plan: Final = _method(calls.plan)
    pop: Final = _method(calls.pop)
    frame: Final = _method(calls.frame)
    work: Final = _method(calls.work)
    handoff: Final = _method(calls.handoff)
    lock: Final = _method(calls.lock)

    def push(self, goal: str, *, parent: str | None = None, fork: bool = True, policy: str | None = None) -> AsyncPush:
        """Start a goal like `Client.push`: await it, or use it as an asynchronous context manager that ends it."""
        return AsyncPush(self, calls.push(goal, parent=parent, fork=fork, policy=policy))

    # --- the session ---------------------------------------------------------------------------------

    status: Final = _method(calls.status)
    fork_session: Final = _method(calls.fork_session)
    rollback: Final = _method(calls.rollback)
    restart_session: Final = _method(calls.restart_session)
    end_session: Final = _method(calls.end_session)

    async def pending_queries(self) -> list[Query]:
        """Return all pending queries with their whole prompts, which are missing in an answer that was too long."""
        named = None if self.session is None or calls.is_frame(self.session) else self.session
        session = named or (await self.status())["session"]
        control = await AsyncDaemonConnection.open(ListQueries(session))
        control.close()
        return [Query.read(plain(query)) for query in control.reply.queries]

    async def _connected(self) -> AsyncDaemonConnection[McpServed]:
        while self._idle:
            connection = self._idle.pop()
            if not connection.has_ended():
                return connection
            connection.close()
        return await AsyncDaemonConnection.open(ServeMcp(), calls.environment(self.session, self.policy), self._name)


class AsyncGoal(AsyncClient):
    """A pushed goal: a client in its session, with the answers to its push and pop, like `Goal`."""

    def __init__(self, above: AsyncClient, pushed: Pushed) -> None:
        super().__init__(pushed.frame, on_progress=above.on_progress)
        self.pushed = pushed
        self.popped: Popped | None = None

    @property
    def id(self) -> str:
        """The id of the frame."""
        return self.pushed.frame

    async def call(self, tool: str, /, **arguments: Any) -> JsonObject:
        """Call a tool in the session of the goal; see `AsyncClient.call`."""
        answer = await super().call(tool, **arguments)
        if tool == "pop" and answer["frame"] == self.id:
            self.popped = Popped.read(answer)
        return answer


class AsyncPush:
    """A push. Awaiting it returns the goal; as a context manager it also pops the goal, like `Goal`."""

    def __init__(self, above: AsyncClient, call: calls.Call[Pushed]) -> None:
        self._above, self._call = above, call
        self._goal: AsyncGoal | None = None

    def __await__(self) -> Generator[Any, None, AsyncGoal]:
        return self._made().__await__()

    async def __aenter__(self) -> AsyncGoal:
        self._goal = await self._made()
        return self._goal

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        goal = self._goal
        if goal is None:
            return
        try:
            if goal.popped is None:
                call = calls.pop(goal.id) if error is None else calls.failure(goal.id, error)
                goal.popped = call.read(await self._above.call(call.tool, **call.arguments))
        except KernelError as refused:
            if error is None:
                raise
            error.add_note(f"the frame {goal.id} could not be popped: {refused}")
        finally:
            await goal.aclose()

    async def _made(self) -> AsyncGoal:
        call = self._call
        return AsyncGoal(self._above, call.read(await self._above.call(call.tool, **call.arguments)))
