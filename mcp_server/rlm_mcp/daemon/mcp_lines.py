"""MCP messages as lines, in both directions.

All input is untrusted. For a line that is not a message, `parse_message` says what is wrong, with its id if it can be
found, so that no caller waits forever.
"""

from __future__ import annotations

import json

from mcp_types import JSONRPCMessage, JSONRPCNotification, jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from rlm_ipc.json_lines import EDGE, INVALID_REQUEST, PARSE_ERROR, edge_id
from rlm_ipc.messages import JsonObject
from rlm_mcp.daemon.message_lines import cleaned, repaired
from rlm_mcp.errors import MessageRefused

# --- from a line to a message ---------------------------------------------------------------------


def parse_message(line: bytes) -> JSONRPCMessage:
    """Return the JSON-RPC message in a line; raises :class:`MessageRefused` with what is wrong with it."""
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        raise _refusal(line, error) from None
    # A request whose id has a wrong type would pass as a notification, which gets no answer.
    if isinstance(message, JSONRPCNotification) and b'"id"' in line and "id" in json.loads(line):
        raise _refusal(line, None)
    return message


def _refusal(line: bytes, error: ValidationError | None) -> MessageRefused:
    """Say what is wrong with a line that the SDK refuses."""
    _, request_id = edge_id(line[:EDGE], line[-EDGE:])
    try:
        raw = json.loads(line)
    except UnicodeDecodeError as bad:
        reason = f"byte {bad.start} is not valid UTF-8; encode messages as UTF-8"
        return MessageRefused(PARSE_ERROR, f"the message is not text: {reason}", request_id)
    except RecursionError:
        return MessageRefused(PARSE_ERROR, "the message is nested too deeply; flatten it", request_id)
    except ValueError as bad:
        reason = f"{bad}; send one JSON object per line, with NUL and other control characters escaped"
        return MessageRefused(PARSE_ERROR, f"the message is not JSON: {reason}", request_id)
    if isinstance(raw, list):
        return MessageRefused(INVALID_REQUEST, "MCP has no batches; send each message on its own line")
    if not isinstance(raw, dict):
        return MessageRefused(INVALID_REQUEST, f"a message is a JSON object, not {_kind(raw)}")
    return _wrong_member(raw, error)


def _wrong_member(raw: JsonObject, error: ValidationError | None) -> MessageRefused:
    """Name the member of a JSON object that keeps it from being a JSON-RPC message."""
    given = raw.get("id")
    request_id = given if isinstance(given, str | int) and not isinstance(given, bool) else None
    if isinstance(request_id, str):
        request_id = cleaned(request_id)
    if raw.get("jsonrpc") != "2.0":
        reason = 'the member "jsonrpc" must be "2.0"'
    elif "id" in raw and request_id is None:
        reason = f'the member "id" must be a string or a whole number, not {_kind(given)}'
    elif not isinstance(raw.get("method"), str):
        reason = f'the member "method" must be a string, not {_kind(raw.get("method"))}'
    elif not isinstance(raw.get("params", {}), dict):
        reason = f'the member "params" must be an object, not {_kind(raw["params"])}'
    elif cleaned(text := json.dumps(raw, ensure_ascii=False)) != text:
        return MessageRefused(
            PARSE_ERROR,
            "a string holds half of a surrogate pair (\\ud800 to \\udfff alone), which is not text; "
            "replace it (in JavaScript with text.toWellFormed()), or save as UTF-8 what it was read from",
            request_id,
        )
    else:
        reason = error.errors()[0]["msg"] if error else "it is malformed"
    return MessageRefused(INVALID_REQUEST, f"not a JSON-RPC request: {reason}", request_id)


def _kind(value: object) -> str:
    """Name a JSON value's type the way JSON does."""
    names = {bool: "a boolean", int: "a number", float: "a fraction", str: "a string", list: "an array"}
    return "missing" if value is None else names.get(type(value), "an object")


# --- from a message to a line ---------------------------------------------------------------------


def render_message(message: JSONRPCMessage) -> bytes:
    """Return a message as a line; text in it that is not valid Unicode is repaired, not lost."""
    try:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
    except (PydanticSerializationError, UnicodeError):
        return repaired(message.model_dump(by_alias=True, exclude_unset=True))
