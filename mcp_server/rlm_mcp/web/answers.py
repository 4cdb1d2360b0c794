"""What calls of the page have in common: their address, JSON without markup, and refusals."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.responses import Response

from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.tool_answers import clean

__all__ = ["PREFIX", "Nothing", "encode", "refused"]

PREFIX = "/api/"
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_STATUS = {"session_not_found": 404, "frame_not_found": 404, "invalid_arguments": 400, "internal_error": 500}


class Nothing(BaseModel):
    """No arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


def encode(value: Any) -> bytes:
    """Write JSON that no browser takes for markup, even if it were to guess."""
    return json.dumps(clean(value), ensure_ascii=False, separators=(",", ":")).translate(_MARKUP).encode()


def refused(error: Exception) -> Response:
    """Return the answer to a call that failed, with what to do next."""
    if isinstance(error, ValidationError):
        said = "; ".join(detail["msg"] for detail in error.errors(include_url=False, include_input=False))
        error = ToolFault("invalid_arguments", said)
    fault = fault_from(error)
    return Response(encode(fault.answer()), _STATUS.get(fault.code, 409), media_type="application/json")
