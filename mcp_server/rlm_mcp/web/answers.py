"""What calls of the page have in common: their address, JSON without markup, and refusals."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from rlm_ipc.messages import JsonObject
from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.tool_answers import clean, clean_text

__all__ = ["PREFIX", "Nothing", "as_download", "deed", "encode", "refused"]

PREFIX = "/api/"
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_STATUS = {"session_not_found": 404, "frame_not_found": 404, "invalid_arguments": 400, "internal_error": 500}


class Nothing(BaseModel):
    """No arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


def encode(value: Any) -> bytes:
    """Write JSON that no browser takes for markup, even if it were to guess."""
    return json.dumps(clean(value), ensure_ascii=False, separators=(",", ":")).translate(_MARKUP).encode()


def as_download(text: str) -> Response:
    """Return a file to save, which no browser takes for anything else."""
    return Response(clean_text(text), media_type="application/octet-stream")


def refused(error: Exception) -> Response:
    """Return the answer to a call that failed, with what to do next."""
    if isinstance(error, ValidationError):
        said = "; ".join(detail["msg"] for detail in error.errors(include_url=False, include_input=False))
        error = ToolFault("invalid_arguments", said)
    fault = fault_from(error)
    return Response(encode(fault.answer()), _STATUS.get(fault.code, 409), media_type="application/json")


def deed(model: type[BaseModel], act: Callable[[Request, Any], Awaitable[JsonObject]]) -> Any:
    """Return the endpoint of a call that does something: ``act`` gets the request, and its body as ``model``."""

    async def do(request: Request) -> Response:
        try:
            done = await act(request, model.model_validate_json(await request.body()))
        except Exception as error:
            return refused(error)
        return Response(encode(done), media_type="application/json")

    return do
