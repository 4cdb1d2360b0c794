"""How the page's endpoints tell what has failed."""

import json

import pytest
from starlette.requests import Request
from starlette.responses import Response

from rlm_mcp.web.answers import answering

pytestmark = pytest.mark.anyio


async def test_what_fails_unexpectedly_is_told_as_json() -> None:
    """The page shows what went wrong of every call, a download too; it can read nothing but JSON."""

    async def broken(_request: Request) -> Response:
        raise RuntimeError("a fault of ours")

    answer = await answering(broken)(Request({"type": "http", "method": "GET", "headers": []}))
    assert (answer.status_code, answer.media_type) == (500, "application/json")
    assert json.loads(bytes(answer.body))["error"] == "internal_error"
