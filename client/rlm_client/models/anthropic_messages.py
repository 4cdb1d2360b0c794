"""Anthropic's messages protocol, through Anthropic's own client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from json import JSONDecodeError
from typing import Any, ClassVar

import anthropic
from pydantic import BaseModel, ValidationError

from rlm_client.models.interface import ChatMessage, Completion, Finish
from rlm_client.models.streaming import BrokenOff, Speaker, is_whole, tokens, told_whole
from rlm_ipc.messages import JsonObject

__all__ = ["AnthropicMessages"]

_GIVEN = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
"""The counts that make up the tokens in: those of a prompt cache are reported apart."""
_MADE = "output_tokens"


class _Block(BaseModel):
    type: str
    text: str = ""


class _Answer(BaseModel):
    """What is read of a whole answer. The library's own types take three times as long to build."""

    content: list[_Block]
    stop_reason: str | None
    model: str
    usage: Any = None


class AnthropicMessages(Speaker):
    """One endpoint, and the key to it."""

    _library: ClassVar[Any] = anthropic
    _connect: ClassVar[Callable[..., Any]] = anthropic.AsyncAnthropic
    _raises: ClassVar[type[Exception]] = anthropic.AnthropicError
    _path: ClassVar[str] = "/v1/messages"
    spoken: ClassVar[str] = "Anthropic's messages"
    finishes: ClassVar[Mapping[str, Finish]] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "tool_use": "stop",
        "pause_turn": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
    }

    _client: anthropic.AsyncAnthropic

    def _request(self, messages: list[ChatMessage], max_tokens: int, schema: Mapping[str, Any] | None) -> JsonObject:
        system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
        turns = [message for message in messages if message["role"] != "system"]
        request: JsonObject = {"model": self._endpoint.model, "max_tokens": max_tokens, "messages": turns}
        if system:
            request["system"] = system
        if schema is not None and self._endpoint.native_schema:
            request["output_config"] = {"format": {"type": "json_schema", "schema": dict(schema)}}
        return request

    def _read(self, messages: list[ChatMessage], raw: bytes) -> Completion:
        try:
            answer = _Answer.model_validate_json(raw)
        except ValidationError:
            raise self._not_ours() from None
        texts = [block.text for block in answer.content if block.type == "text"]
        text = "".join(texts) if texts else None
        given, made = tokens(answer.usage, *_GIVEN), tokens(answer.usage, _MADE)
        return self._completed(messages, text, answer.model, answer.stop_reason, given, made)

    async def _streamed(
        self, messages: list[ChatMessage], request: JsonObject, on_text: Callable[[str], None]
    ) -> Completion:
        pieces, reason, model = [], None, None
        given = made = None
        try:
            answer = await self._client.messages.with_raw_response.create(**request, stream=True)
            if is_whole(answer.headers):
                return told_whole(self._read(messages, await answer.http_response.aread()), on_text)
            async for event in await answer.parse():
                if event.type == "message_start":
                    model, given = event.message.model, tokens(event.message.usage, *_GIVEN)
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    pieces.append(event.delta.text)
                    on_text(event.delta.text)
                elif event.type == "message_delta":
                    reason, made = event.delta.stop_reason, tokens(event.usage, _MADE)
        except anthropic.AnthropicError as error:
            if getattr(error, "status_code", None) == HTTPStatus.OK:  # a fault that is told in the stream
                raise BrokenOff(self._said(error)) from error
            raise self._fault(error) from error
        except (JSONDecodeError, UnicodeDecodeError) as error:  # nor does it mind a body that is not JSON
            raise self._useless("it is not JSON", begun=model is not None) from error
        if reason is None:
            raise self._useless("it has no end", begun=model is not None)
        return self._completed(messages, "".join(pieces) if pieces else None, model, reason, given, made)

    @staticmethod
    def _message(body: Mapping[str, Any]) -> object:
        inner = body.get("error")
        return inner.get("message") if isinstance(inner, dict) else None
