"""What an agent program asks of a model, and how a model answers, in each of the four protocols that they speak."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

__all__ = ["DIALECTS", "Call", "Dialect", "Event", "Tool", "Turn"]

Event = Mapping[str, object]
"""One event of a streamed answer, as the protocol has it."""

_numbers = count(1)
"""Of messages and calls: clients take two with the same id for one."""


@dataclass(frozen=True)
class Tool:
    """A tool that the model is told of; ``space``: the namespace that some programs put around its name."""

    name: str
    description: str = ""
    space: str = ""


@dataclass(frozen=True)
class Call:
    """A call of one tool."""

    tool: Tool
    arguments: Mapping[str, object]


@dataclass
class Turn:
    """One request to the model, read alike from every protocol."""

    prompts: list[str] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    """The names of the tools that the model has called so far in this conversation."""
    answers: list[str] = field(default_factory=list)
    """What the tools answered, as the model reads it."""


class Dialect:
    """A protocol: how a request is read, and how one call or one text is streamed."""

    ending: str
    """How the path of a request ends."""
    named = False
    """Whether each event of the stream has a name line."""
    closing = ""
    """What ends the stream."""

    def read(self, body: Any) -> Turn:
        """Return what the request says."""
        raise NotImplementedError

    def events(self, said: Call | str) -> Iterator[Event]:
        """Yield the events of an answer."""
        raise NotImplementedError


def _text(content: object) -> str:
    """Return the text of a message's content; a picture counts as one word."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        kind = str(content.get("type", ""))
        return "[image]" if "image" in kind else _text(content.get("text", content.get("content", "")))
    return "\n".join(map(_text, content)) if isinstance(content, Iterable) else ""


class _Anthropic(Dialect):
    ending = "/messages"
    named = True

    def read(self, body: Any) -> Turn:
        turn = Turn(tools=[Tool(tool["name"], tool.get("description", "")) for tool in body.get("tools") or []])
        for message in body["messages"]:
            content = message["content"]
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if part["type"] == "tool_use":
                    turn.called.append(part["name"])
                elif part["type"] == "tool_result":
                    turn.answers.append(_text(part.get("content", "")))
                elif message["role"] == "user":
                    turn.prompts.append(_text(part))
        return turn

    def events(self, said: Call | str) -> Iterator[Event]:
        usage = {"input_tokens": 10, "output_tokens": 5}
        number = next(_numbers)
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "scripted", "content": []}
        begun = message | {"stop_reason": None, "stop_sequence": None, "usage": usage}
        yield {"type": "message_start", "message": begun}
        if isinstance(said, Call):
            block: Event = {"type": "tool_use", "id": f"toolu_{number}", "name": said.tool.name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(said.arguments)}
        else:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": said}
        yield {"type": "content_block_start", "index": 0, "content_block": block}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        stop = {"stop_reason": "tool_use" if isinstance(said, Call) else "end_turn", "stop_sequence": None}
        yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 5}}
        yield {"type": "message_stop"}


class _Chat(Dialect):
    ending = "/chat/completions"
    closing = "data: [DONE]\n\n"

    def read(self, body: Any) -> Turn:
        functions = [tool["function"] for tool in body.get("tools") or []]
        turn = Turn(tools=[Tool(function["name"], function.get("description", "")) for function in functions])
        for message in body["messages"]:
            turn.called += [call["function"]["name"] for call in message.get("tool_calls") or []]
            if message["role"] == "tool":
                turn.answers.append(_text(message["content"]))
            elif message["role"] == "user":
                turn.prompts.append(_text(message["content"]))
        return turn

    def events(self, said: Call | str) -> Iterator[Event]:
        number = next(_numbers)
        base = {"id": f"chat_{number}", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
        delta: dict[str, object] = {"role": "assistant"}
        if isinstance(said, Call):
            function = {"name": said.tool.name, "arguments": json.dumps(said.arguments)}
            delta["tool_calls"] = [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]
        else:
            delta["content"] = said
        yield base | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        last = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if isinstance(said, Call) else "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        yield base | {"choices": [last], "usage": usage}


class _Responses(Dialect):
    ending = "/responses"
    named = True

    def read(self, body: Any) -> Turn:
        turn = Turn()
        for tool in body.get("tools") or []:
            inner = tool.get("tools") if tool["type"] == "namespace" else None
            space = tool["name"] if inner else ""
            for each in inner or [tool]:
                turn.tools.append(Tool(each.get("name", each["type"]), each.get("description", ""), space))
        for item in body["input"]:
            kind = item.get("type", "message")
            if kind == "function_call":
                turn.called.append(item["name"])
            elif kind == "function_call_output":
                turn.answers.append(_text(item["output"]))
            elif kind == "message" and item["role"] == "user":
                turn.prompts.append(_text(item["content"]))
        return turn

    def events(self, said: Call | str) -> Iterator[Event]:
        number = next(_numbers)
        if isinstance(said, Call):
            item: dict[str, object] = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
            item |= {"name": said.tool.name, "arguments": json.dumps(said.arguments)}
            item |= {"namespace": said.tool.space} if said.tool.space else {}
        else:
            content = [{"type": "output_text", "text": said, "annotations": []}]
            item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
        response = {"id": f"resp_{number}", "object": "response", "status": "in_progress", "output": []}
        yield {"type": "response.created", "response": response}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        done = response | {"status": "completed", "output": [item], "usage": usage}
        yield {"type": "response.completed", "response": done}


class _Gemini(Dialect):
    ending = ":streamGenerateContent"

    def read(self, body: Any) -> Turn:
        functions = [each for tool in body.get("tools") or [] for each in tool.get("functionDeclarations") or []]
        turn = Turn(tools=[Tool(function["name"], function.get("description", "")) for function in functions])
        for content in body["contents"]:
            for part in content["parts"]:
                if "functionCall" in part:
                    turn.called.append(part["functionCall"]["name"])
                elif "functionResponse" in part:
                    response = part["functionResponse"]
                    pictures = ["[image]" for each in response.get("parts") or [] if "inlineData" in each]
                    turn.answers.append("\n".join([json.dumps(response["response"]), *pictures]))
                elif "inlineData" in part:
                    turn.answers.append("[image]")
                elif content["role"] == "user":
                    turn.prompts.append(_text(part))
        return turn

    def events(self, said: Call | str) -> Iterator[Event]:
        part: Event = {"text": said}
        if isinstance(said, Call):
            part = {"functionCall": {"name": said.tool.name, "args": said.arguments}}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        yield {"candidates": [candidate], "usageMetadata": usage}


DIALECTS: Sequence[Dialect] = (_Anthropic(), _Chat(), _Responses(), _Gemini())
