"""Anthropic's messages protocol, through Anthropic's own client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from json import JSONDecodeError
from typing import Any, ClassVar

import anthropic
from pydantic import BaseModel, ValidationError

from rlm_client.models.interface import ChatMessage, Completion, Finish
from rlm_client.models.streaming import BrokenOff, Speaker, is_whole, told_whole
from rlm_ipc.messages import JsonObject

__all__ = ["AnthropicMessages"]


class _Block(BaseModel):
    type: str
    text: str = ""


class _Used(BaseModel):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Answer(BaseModel):
    """What is read of a whole answer. The library's own types take three times as long to build."""

    content: list[_Block]
    stop_reason: str | None
    model: str
    usage: _Used


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
        counted = _tokens_in(answer.usage), answer.usage.output_tokens
        return self._completed(messages, "".join(texts) if texts else None, answer.model, answer.stop_reason, counted)

    async def _streamed(
        self, messages: list[ChatMessage], request: JsonObject, on_text: Callable[[str], None]
    ) -> Completion:
        pieces, reason, model = [], None, None
        given = made = 0
        try:
            answer = await self._client.messages.with_raw_response.create(**request, stream=True)
            if is_whole(answer.headers):
                return told_whole(self._read(messages, await answer.http_response.aread()), on_text)
            async for event in await answer.parse():
                if event.type == "message_start":
                    model, given = event.message.model, _tokens_in(event.message.usage)
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    pieces.append(event.delta.text)
                    on_text(event.delta.text)
                elif event.type == "message_delta":
                    reason, made = event.delta.stop_reason, event.usage.output_tokens
        except anthropic.AnthropicError as error:
            if getattr(error, "status_code", None) == HTTPStatus.OK:  # a fault that is told in the stream
                raise BrokenOff(self._said(error)) from error
            raise self._fault(error) from error
        except (JSONDecodeError, UnicodeDecodeError) as error:  # nor does it mind a body that is not JSON
            raise self._useless("it is not JSON", begun=model is not None) from error
        if reason is None:
            raise self._useless("it has no end", begun=model is not None)
        return self._completed(messages, "".join(pieces) if pieces else None, model, reason, (given, made))

    @staticmethod
    def _message(body: Mapping[str, Any]) -> object:
        inner = body.get("error")
        return inner.get("message") if isinstance(inner, dict) else None


def _tokens_in(usage: anthropic.types.Usage | _Used) -> int:
    """Tokens in, those of a prompt cache too."""
    return usage.input_tokens + (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
