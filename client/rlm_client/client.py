"""The Python client: one session of the daemon with a typed method for each tool.

::

    from rlm_client import Client

    with Client("analysis") as client:
        client.load_context("log", "app.log")
        print(client.eval_code("len(log['lines'])").result)

If no daemon is running, it is started. A client has one connection and makes one call at a time: use one client for
each thread, so that threads do not wait for each other. Closing a client interrupts the code of its running call.
`rlm_client.async_client` has the same for an event loop.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

from rlm_client import calls, representations
from rlm_client.results import Popped, Pushed, Query
from rlm_ipc.daemon_connection import DaemonConnection, ask
from rlm_ipc.daemon_dialogue import OnProgress
from rlm_ipc.daemon_requests import McpServed, ServeMcp
from rlm_ipc.errors import KernelError, ToolFailed
from rlm_ipc.messages import JsonObject, plain

__all__ = ["Client", "Goal", "call_tool"]

P = ParamSpec("P")
T = TypeVar("T")


def _method(make: Callable[P, calls.Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """Return the method that makes a call and reads its answer."""

    @functools.wraps(make)
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        call = make(*args, **kwargs)
        return call.read(self.call(call.tool, **call.arguments))

    method.__signature__ = calls.signature_of(make)  # type: ignore[attr-defined]  # what inspect reads
    return method


class Client:
    """A session of the daemon.

    ``session`` defaults to that of the environment or the git root, as for every client. ``policy`` applies if the
    session is not open yet. ``on_progress`` is called during long calls. Methods raise `ToolFailed` if a tool answers
    with an error, whose ``answer`` says what to do, and `DaemonUnavailable` if the daemon ends during a call.
    """

    def __init__(
        self, session: str | None = None, *, policy: calls.StrPath | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self.session = session
        self.on_progress = on_progress
        self.policy: str | None = None if policy is None else os.fspath(policy)
        self._name = calls.new_name()
        self._lock = threading.Lock()
        self._connection: DaemonConnection[McpServed] | None = None

    def __repr__(self) -> str:
        return representations.shown(type(self).__name__, self.session, self.policy)

    def _repr_html_(self) -> str:
        return representations.shown_html(self.session, self.policy)

    def call(self, tool: str, /, **arguments: Any) -> JsonObject:
        """Call a tool by name and return its whole answer; arguments that are None are left out.

        If a cell takes longer than one call may, the method continues to wait.
        """
        request = calls.ToolCall(tool, arguments)
        with self._lock:
            try:
                answer = None
                while answer is None:
                    result = self._connected().request("tools/call", request.params, self.on_progress)
                    answer = request.take(result)
                return answer
            except ToolFailed:
                raise
            except BaseException:
                self._hang_up()  # a late answer must not be taken for that of the next call
                raise

    def close(self) -> None:
        """Close the connection; the session is kept. The next call connects again."""
        self._hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def push(self, goal: str, *, parent: str | None = None, fork: bool = True, policy: str | None = None) -> Goal:
        """Start a goal, or a planned frame by its id, in a fork of the nearest session above, or in that session.

        Used as a context manager, the goal ends with its block.
        """
        call = calls.push(goal, parent=parent, fork=fork, policy=policy)
        return Goal(self, call.read(self.call(call.tool, **call.arguments)))

    # --- the session ---------------------------------------------------------------------------------

    status: Final = _method(calls.status)
    fork_session: Final = _method(calls.fork_session)
    rollback: Final = _method(calls.rollback)
    restart_session: Final = _method(calls.restart_session)
    end_session: Final = _method(calls.end_session)

    def pending_queries(self) -> list[Query]:
        """Return all pending queries with their whole prompts, which are missing in an answer that was too long."""
        named = None if self.session is None or calls.is_frame(self.session) else self.session
        from rlm_ipc.session_requests import ListQueries  # not before a daemon starts

        request = ListQueries(named or self.status()["session"])
        return [Query.read(plain(query)) for query in ask(request, start=True).queries]

    # --- the connection ---------------------------------------------------------------------------

    def _connected(self) -> DaemonConnection[McpServed]:
        if self._connection is not None and self._connection.has_ended():
            self._hang_up()
        if self._connection is None:
            environment = calls.environment(self.session, self.policy)
            self._connection = DaemonConnection(ServeMcp(), start=True, environment=environment, client=self._name)
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()


class Goal(Client):
    """A pushed goal: a client in its session. ``pushed`` is the answer to the push, ``popped`` that to a pop.

    At the end of its block it is popped as completed, unless the block has popped it. If the block raises, it is
    popped as failed, with the text of the exception.
    """

    def __init__(self, above: Client, pushed: Pushed) -> None:
        super().__init__(pushed.frame, on_progress=above.on_progress)
        self.pushed = pushed
        self.popped: Popped | None = None
        self._above = above

    @property
    def id(self) -> str:
        """The id of the frame."""
        return self.pushed.frame

    def call(self, tool: str, /, **arguments: Any) -> JsonObject:
        """Call a tool in the session of the goal; see `Client.call`."""
        answer = super().call(tool, **arguments)
        if tool == "pop" and answer["frame"] == self.id:
            self.popped = Popped.read(answer)
        return answer

    def __exit__(self, *raised: object) -> None:
        error = next((value for value in raised if isinstance(value, BaseException)), None)
        try:
            if self.popped is None:
                call = calls.pop(self.id) if error is None else calls.failure(self.id, error)
                self.popped = call.read(self._above.call(call.tool, **call.arguments))
        except KernelError as refused:
            if error is None:
                raise
            error.add_note(f"the frame {self.id} could not be popped: {refused}")
        finally:
            self.close()


def call_tool(
    name: str,
    arguments: JsonObject,
    *,
    session: str | None = None,
    policy: str | None = None,
    on_progress: OnProgress | None = None,
) -> JsonObject:
    """Make one call on a separate connection; see `Client.call`."""
    with Client(session, policy=policy, on_progress=on_progress) as client:
        return client.call(name, **arguments)
