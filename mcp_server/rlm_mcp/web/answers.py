"""What calls of the page have in common: their address, JSON without markup, and refusals."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rlm_ipc.messages import JsonObject
from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.tool_answers import clean, clean_text

PREFIX = "/api/"
_MARKUP = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})
_STATUS = {"session_not_found": 404, "frame_not_found": 404, "invalid_arguments": 400, "internal_error": 500}
Endpoint = Callable[[Request], Awaitable[Response]]


class Nothing(BaseModel):
    """No arguments."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


def encode(value: Any) -> bytes:
    """Write JSON that no browser takes for markup, even if it were to guess."""
    return json.dumps(clean(value), ensure_ascii=False, separators=(",", ":")).translate(_MARKUP).encode()


def as_download(text: str) -> Response:
    """Return a file to save, which no browser takes for anything else."""
    return Response(clean_text(text), media_type="application/octet-stream")


def as_json(value: JsonObject, status: int = 200) -> Response:
    """Return an answer that a program reads."""
    return Response(encode(value), status, media_type="application/json")


def as_picture(png: bytes) -> Response:
    """Return a picture."""
    return Response(png, media_type="image/png")


def answering(answer: Endpoint) -> Endpoint:
    """Return an endpoint that says what to do next when ``answer`` fails."""

    async def answer_or_refuse(request: Request) -> Response:
        try:
            return await answer(request)
        except Exception as error:
            return _refused(error)

    return answer_or_refuse


def look(path: str, answer: Endpoint) -> Route:
    """Return the route of a call that only looks."""
    return Route(path, answering(answer), methods=["GET"])


def deed(path: str, model: type[BaseModel], act: Callable[[Request, Any], Awaitable[JsonObject]]) -> Route:
    """Return the route of a call that does something: ``act`` gets the request, and its body as ``model``."""

    async def do(request: Request) -> Response:
        return as_json(await act(request, model.model_validate_json(await request.body())))

    return Route(path, answering(do), methods=["POST"])


def _refused(error: Exception) -> Response:
    if isinstance(error, ValidationError):
        said = "; ".join(detail["msg"] for detail in error.errors(include_url=False, include_input=False))
        error = ToolFault("invalid_arguments", said)
    fault = fault_from(error)
    return as_json(fault.answer(), _STATUS.get(fault.code, 409))
