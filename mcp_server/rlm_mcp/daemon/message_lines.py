"""JSON-RPC messages as lines, without the SDK: the check before parsing, and the encoding."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from pydantic_core import PydanticSerializationError, to_json

from rlm_ipc.json_lines import EDGE, INVALID_REQUEST, edge_id, error_line
from rlm_ipc.json_size import MOST_VALUES, has_too_many_values
from rlm_mcp.errors import MessageRefused

log = logging.getLogger(__name__)


def refuse_too_many_values(line: bytes) -> None:
    """Raise :class:`MessageRefused` for a line whose objects would take many times its size in memory."""
    if has_too_many_values(line):
        _, request_id = edge_id(line[:EDGE], line[-EDGE:])
        reason = f"the message has more than {MOST_VALUES:,} values; write them to a file and load that"
        raise MessageRefused(INVALID_REQUEST, f"{reason}: load_context(name, path=...)", request_id)


def as_line(message: Mapping[str, object]) -> bytes:
    """Return a message as a line; text in it that is not valid Unicode is repaired, not lost."""
    try:
        return to_json(message) + b"\n"
    except (PydanticSerializationError, UnicodeError):
        return repaired(message)


def repaired(message: Mapping[str, object]) -> bytes:
    """Return a message that has invalid Unicode as a line, repaired, or an error that it cannot be written."""
    log.warning("answer repaired")
    try:
        return cleaned(json.dumps(message, ensure_ascii=False)).encode() + b"\n"
    except (TypeError, ValueError) as error:
        log.exception("answer cannot be written")
        number = message.get("id")
        request = number if isinstance(number, int | str) else None
        return error_line(request, -32603, f"the answer cannot be written as JSON: {error}; please report this")


def cleaned(text: str) -> str:
    """Join surrogate pairs, and replace lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
