"""Calls of tools over MCP's streamable HTTP, for programs that cannot reach the daemon's socket.

It uses the official client, on an event loop in another thread.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import httpx2
from anyio.from_thread import start_blocking_portal
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from rlm_client import calls
from rlm_ipc.errors import DaemonUnavailable
from rlm_ipc.messages import JsonObject

__all__ = ["HttpClient"]

_SECONDS = 900.0
"""For long answers: the server itself limits each call."""
_UNREACHABLE = (OSError, httpx2.HTTPError, MCPError, ExceptionGroup)


class HttpClient:
    """A session over HTTP. ``url`` and ``token`` are those that `rlm-kernel serve` prints."""

    def __init__(self, url: str, token: str, session: str | None = None) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", **({"Rlm-Session": session} if session else {})}
        self._open, self._connection = ExitStack(), ExitStack()
        self._portal = self._open.enter_context(start_blocking_portal())
        self._client: Client | None = None

    def call(self, tool: str, /, **arguments: Any) -> JsonObject:
        """Call a tool and return its whole answer; see `rlm_client.client.Client.call`."""
        request = calls.ToolCall(tool, arguments)
        answer = None
        while answer is None:
            try:
                client = self._client = self._client or self._connected()
                result = self._portal.call(client.call_tool, request.params["name"], request.params["arguments"])
            except _UNREACHABLE as problem:
                self._hang_up()  # the next call finds a server that has started again
                raise DaemonUnavailable(self._unanswered(problem)) from problem
            answer = request.take(result.model_dump(mode="json", by_alias=True, exclude_none=True))
        return answer

    def close(self) -> None:
        """Close the connection; the session is kept."""
        try:
            self._connection.close()
        finally:
            self._open.close()

    def _connected(self) -> Client:
        web = httpx2.AsyncClient(headers=self._headers, timeout=_SECONDS)
        self._connection.enter_context(self._portal.wrap_async_context_manager(web))
        client = Client(streamable_http_client(self._url, http_client=web))
        return self._connection.enter_context(self._portal.wrap_async_context_manager(client))

    def _hang_up(self) -> None:
        self._client = None
        with suppress(*_UNREACHABLE):
            self._connection.close()

    def _unanswered(self, problem: BaseException) -> str:
        while isinstance(problem, BaseExceptionGroup):
            problem = problem.exceptions[0]
        return f"{self._url} does not answer ({problem}); run `rlm-kernel serve`, and give the url and token it names"
