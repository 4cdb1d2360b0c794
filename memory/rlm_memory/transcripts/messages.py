"""The shapes of messages, and which of them belong together.

A message is a dictionary with a ``role`` and a ``content``, as in the protocols of OpenAI and Anthropic. A tool call is
an entry of ``tool_calls`` or a block of ``content``; its result is a message with the role ``tool`` or a block of a
user's message. Keys that begin with ``_`` are our own and never reach a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Message = dict[str, Any]


def checked(messages: Iterable[Any]) -> list[Message]:
    """Return the messages.

    Raises:
        ValueError: one of them is not a message.
    """
    found = list(messages)
    for number, message in enumerate(found):
        if not isinstance(message, dict):
            kind = type(message).__name__
            raise ValueError(f"item {number} is a {kind}, not a message; give a dictionary with role and content")
    return found


def as_text(message: Mapping[str, Any]) -> str:
    """Return a message as text: its role, and what it says or calls; for a cell, its code."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(str(block.get("text", "")) for block in blocks(dict(message), "text"))
    calls = [_call(function) for function in functions_of(message)]
    return f"{message.get('role')}: {chr(10).join([str(content), *calls]).strip()}"


def called(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return a tool call as text; for a cell, its code."""
    if tool == "eval_code" and arguments.keys() == {"code"}:
        return str(arguments["code"])
    return f"{tool}({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"


def _call(function: Mapping[str, Any]) -> str:
    name, given = str(function.get("name", "?")), function.get("arguments", "")
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        arguments = None
    return called(name, arguments) if isinstance(arguments, Mapping) else f"{name}({given})"


def blocks(message: Message, kind: str) -> list[dict[str, Any]]:
    """Return the blocks of one type that the content holds."""
    content = message.get("content")
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) and block.get("type") == kind]


def functions_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the functions that a message calls in ``tool_calls``, skipping malformed entries."""
    made = _made(message)
    return [call["function"] if isinstance(call.get("function"), dict) else call for call in made]


def calls_of(message: Message) -> list[str]:
    """Return the ids of the tool calls that a message makes."""
    made = [*_made(message), *blocks(message, "tool_use")]
    if isinstance(message.get("tool_use"), dict):
        made.append(message["tool_use"])
    return [str(call["id"]) for call in made if call.get("id") is not None]


def results_of(message: Message) -> list[str]:
    """Return the ids of the tool calls whose results a message brings."""
    brought = [message.get("tool_call_id")] if message.get("role") == "tool" else []
    brought += [block.get("tool_use_id") for block in blocks(message, "tool_result")]
    if isinstance(message.get("tool_result"), dict):
        brought.append(message["tool_result"].get("tool_use_id"))
    return [str(call) for call in brought if call is not None]


def has_tools(message: Message) -> bool:
    """Return whether a message makes a tool call or brings a result."""
    named = message.get("role") in ("tool", "function") or "tool_use" in message or "tool_result" in message
    return named or bool(message.get("tool_calls") or blocks(message, "tool_use") or blocks(message, "tool_result"))


def opens_turn(message: Message) -> bool:
    """Return whether a user speaks: a user's message that only brings a tool's result continues the turn."""
    return message.get("role") == "user" and not results_of(message)


def units(messages: Sequence[Message]) -> list[list[Message]]:
    """Group messages into turns. Turns over which a tool call and its result are spread become one.

    A turn begins with a user's message. Messages before the first one form a turn of their own.
    """
    turns: list[list[Message]] = []
    for message in messages:
        if opens_turn(message) or not turns:
            turns.append([])
        turns[-1].append(message)
    return [[message for turn in turns[start:end] for message in turn] for start, end in linked(turns)]


def linked(turns: Iterable[Iterable[Message]]) -> list[tuple[int, int]]:
    """Return the spans of turns that must be cut together, as (first, one after the last).

    A result belongs to the last call before it with the same id.
    """
    called: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for number, turn in enumerate(turns):
        first = number
        for message in turn:
            if _is_plain(message):
                continue
            first = min([first, *(called[call] for call in results_of(message) if call in called)])
            called |= dict.fromkeys(calls_of(message), number)
        while spans and spans[-1][1] > first:
            first = min(first, spans.pop()[0])
        spans.append((first, number + 1))
    return spans


def public(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield messages without our own keys."""
    for message in messages:
        ours = [key for key in message if key.startswith("_")]
        yield {key: value for key, value in message.items() if key not in ours} if ours else message


def _made(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls in ``tool_calls``, which may hold anything in a damaged transcript."""
    made = message.get("tool_calls")
    return [call for call in made if isinstance(call, dict)] if isinstance(made, list | tuple) else []


def _is_plain(message: Message) -> bool:
    """Decide quickly, for most messages, that they have nothing to do with tools."""
    return len(message) == 2 and isinstance(message.get("content"), str)
