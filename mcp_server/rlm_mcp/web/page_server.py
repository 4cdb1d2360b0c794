"""Opening the page: a listener of its own, a token of its own, and the checks before anything is answered.

The token is made for each opening and dies with it. It reaches the page in the fragment of the address, which
browsers send to nobody, and the page sends it in a header. There is no cookie: nothing that a browser adds by itself
opens the endpoint, so that a page of another site, or of another port of this machine, has nothing to use.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rlm_ipc.daemon_requests import WebServed
from rlm_mcp.service.service import Service
from rlm_mcp.web import api, files
from rlm_mcp.web.listener import bears, error_response, listening, local_refusal

DEFAULT_PORT = 8138
MOST_BODY = 1 << 20
"""Bytes of the largest request: an answer to a query."""
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Trusted types: no text becomes markup or script anywhere in the page, whatever a kernel has written into it. The page
fetches pictures with its key, and shows them as blobs."""
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), usb=()",
}


@contextlib.asynccontextmanager
async def web_page(service: Service, host: str | None = None, port: int | None = None) -> AsyncIterator[WebServed]:
    """Serve the page; gives where, and the token that opens it.

    Raises what `listening` does.
    """
    token = secrets.token_urlsafe(32)
    app = WebGuard(Starlette(routes=[*files.routes(), *api.routes(service)]), token)
    async with listening(app, host, DEFAULT_PORT if port is None else port) as base:
        yield WebServed(f"{base}/", token)


class WebGuard:
    """ASGI middleware: refuses strangers, and gives every answer the headers that bind the browser."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, bound)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that may not pass.

        The files of the page hold nothing of the user's and are given without a token: a browser has to load them
        before it can send one.
        """
        headers = Headers(scope=scope)
        if (stranger := local_refusal(headers)) is not None:
            return stranger
        if not scope["path"].startswith(api.PREFIX):
            return None
        if not _same_origin(headers):
            return error_response(403, "only the page itself may call this; open the address that rlm-kernel web shows")
        if not bears(headers, self._token):
            wanted = "send the token: open the address that `rlm-kernel web` shows"
            return error_response(401, wanted, {"WWW-Authenticate": "Bearer"})
        return self._unfit(scope["method"], headers)

    @staticmethod
    def _unfit(method: str, headers: Headers) -> Response | None:
        if method != "POST":
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return error_response(415, "send JSON, with Content-Type: application/json")
        length = headers.get("content-length", "")
        if not length.isdecimal() or int(length) > MOST_BODY:
            return error_response(413, f"send a Content-Length of at most {MOST_BODY:,} bytes")
        return None


def _same_origin(headers: Headers) -> bool:
    """Return whether a request comes from our own page, or from a program other than a browser."""
    origin = headers.get("origin")
    own = origin is None or origin.partition("://")[2] == headers.get("host")
    return own and headers.get("sec-fetch-site", "same-origin") in {"same-origin", "none"}
