"""The chat-completions protocol, which OpenAI and most servers of open models speak, through OpenAI's own client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import JSONDecodeError
from typing import Any, ClassVar

import openai
from pydantic import BaseModel, Field, ValidationError

from rlm_client.models.interface import ChatMessage, Completion, Finish
from rlm_client.models.streaming import BrokenOff, Speaker, is_whole, tokens, told_whole
from rlm_ipc.messages import JsonObject

__all__ = ["OpenAIChat"]


class _Said(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None


class _Answer(BaseModel):
    """What is read of a whole answer. The library's own types take three times as long to build."""

    choices: list[_Choice] = Field(min_length=1)
    model: str | None = None
    usage: Any = None


class OpenAIChat(Speaker):
    """One endpoint, and the key to it."""

    _library: ClassVar[Any] = openai
    _connect: ClassVar[Callable[..., Any]] = openai.AsyncOpenAI
    _raises: ClassVar[type[Exception]] = openai.OpenAIError
    _path: ClassVar[str] = "/chat/completions"
    spoken: ClassVar[str] = "OpenAI's chat completions, whose URL often ends in /v1"
    finishes: ClassVar[Mapping[str, Finish]] = {
        "stop": "stop",
        "length": "length",
        "tool_calls": "stop",
        "function_call": "stop",
    }

    _client: openai.AsyncOpenAI

    def _request(self, messages: list[ChatMessage], max_tokens: int, schema: Mapping[str, Any] | None) -> JsonObject:
        # OpenAI's own newer models refuse max_tokens, some other servers know nothing else.
        limit = "max_completion_tokens" if self._endpoint.url() is None else "max_tokens"
        request: JsonObject = {"model": self._endpoint.model, "messages": messages, limit: max_tokens}
        if schema is not None and self._endpoint.native_schema:
            named = {"name": "answer", "schema": dict(schema)}
            request["response_format"] = {"type": "json_schema", "json_schema": named}
        return request

    def _read(self, messages: list[ChatMessage], raw: bytes) -> Completion:
        try:
            answer = _Answer.model_validate_json(raw)
        except ValidationError:
            raise self._not_ours() from None
        choice = answer.choices[0]
        said, reason = choice.message, None if choice.message.refusal else choice.finish_reason
        text = said.content or said.refusal or said.content  # "" is an answer, None is no text
        return self._completed(messages, text, answer.model, reason, *_count(answer.usage))

    async def _streamed(
        self, messages: list[ChatMessage], request: JsonObject, on_text: Callable[[str], None]
    ) -> Completion:
        pieces, reason, model, usage = [], None, None, None
        begun, refusal = False, ""
        try:
            answer = await self._client.chat.completions.with_raw_response.create(
                **request, stream=True, stream_options={"include_usage": True}
            )
            if is_whole(answer.headers):
                return told_whole(self._read(messages, await answer.http_response.aread()), on_text)
            async for chunk in answer.parse():
                begun, model, usage = True, chunk.model or model, chunk.usage or usage
                for choice in chunk.choices[:1]:
                    reason = choice.finish_reason or reason
                    refusal += choice.delta.refusal or ""
                    if choice.delta.content is not None:
                        pieces.append(choice.delta.content)
                        on_text(choice.delta.content)
        except openai.OpenAIError as error:
            if begun:
                raise BrokenOff(self._said(error)) from error
            raise self._fault(error) from error
        except (JSONDecodeError, UnicodeDecodeError) as error:  # this library passes on a body that is not JSON
            raise self._useless("it is not JSON", begun=begun) from error
        if reason is None:
            raise self._useless("it has no end", begun=begun)
        text = "".join(pieces) if pieces else None
        if refusal:
            text, reason = text or refusal, None
        return self._completed(messages, text, model, reason, *_count(usage))

    @staticmethod
    def _message(body: Mapping[str, Any]) -> object:
        return body.get("message")


def _count(usage: object) -> tuple[int | None, int | None]:
    return tokens(usage, "prompt_tokens"), tokens(usage, "completion_tokens")
