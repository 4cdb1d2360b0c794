"""The client's own model, by MCP sampling, if the policy says so and the client offers it.

A client of the 2025 protocol gets a request during its call. One of 2026 gets the answer that input is required: it
repeats the call with the input, and the state that it sends back identifies the run.
"""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    CallToolRequestParams,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
)
from pydantic import ValidationError

from rlm_client.models.streaming import told
from rlm_mcp.service.queries.answering import GivenAnswer
from rlm_mcp.service.queries.input_required import InputRequired
from rlm_memory.queries import QueryRow

MOST_ROUNDS = 8
"""The most rounds of one call; a client of 2026 gives up after ten. Later queries are left to the agent."""
_MOST_TOKENS = 4096


class Sampling:
    """The client's model during one call. ``run`` is set when the call is one that was made before."""

    def __init__(self, context: ServerRequestContext[Any], params: CallToolRequestParams) -> None:
        self._context = context
        self.run, _, rounds = (params.request_state or "").partition(" ")
        self._rounds = int(rounds) if rounds.isdecimal() else 0
        self._brought = [_given(name, answer) for name, answer in (params.input_responses or {}).items()]

    @staticmethod
    def offered(context: ServerRequestContext[Any]) -> bool:
        """Whether the client declares it."""
        capabilities = context.session.client_capabilities
        return capabilities is not None and capabilities.sampling is not None

    def brought(self) -> list[GivenAnswer]:
        """Return, once, the answers that came with the call."""
        brought, self._brought = self._brought, []
        return brought

    async def ask(self, run: str, rows: list[QueryRow], seconds: float) -> list[GivenAnswer]:
        """Request answers to the queries that a run waits for; none if the client does not answer in time.

        Raises:
            InputRequired: the client answers in another call.
        """
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            return []
        if not self._context.session.can_send_request:
            requests = {row.id: _request(row) for row in rows}
            raise InputRequired(InputRequiredResult(input_requests=requests, request_state=f"{run} {self._rounds}"))
        answers = [await self._one(row, seconds) for row in rows]
        return [answer for answer in answers if answer is not None]

    async def _one(self, row: QueryRow, seconds: float) -> GivenAnswer | None:
        origin = ServerMessageMetadata(related_request_id=self._context.request_id)
        try:
            answer = await self._context.session.send_request(_request(row), CreateMessageResult, seconds, origin)
        except (MCPError, ValidationError, TimeoutError):
            return None
        return _given(row.id, answer)


def _request(row: QueryRow) -> CreateMessageRequest:
    (message,) = told([{"role": "user", "content": row.prompt}], row.form)
    said = SamplingMessage(role="user", content=TextContent(text=message["content"]))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[said], max_tokens=_MOST_TOKENS))


def _given(name: str, answer: object) -> GivenAnswer:
    content = answer.content if isinstance(answer, CreateMessageResult) else None
    if isinstance(content, TextContent):
        return GivenAnswer(name, content.text)
    return GivenAnswer(name, problem="the client's model did not answer with text")
