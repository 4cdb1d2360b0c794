"""Import the MCP SDK without the parts that the daemon does not use, to save 27 MB of its memory.

``mcp/__init__.py`` imports the SDK's client, its high-level server and the cryptography for that. Its low-level server
imports a web server and the authentication of its HTTP transport, which few daemons need. And each of its five hundred
models builds its validator at once.
"""

from __future__ import annotations

from rlm_ipc.partial_imports import hollow, stubs

BARE = ("mcp", "mcp.server")
"""Packages from which the daemon needs only single modules."""
HTTP = (
    "starlette",
    "starlette.applications",
    "starlette.middleware",
    "starlette.middleware.authentication",
    "starlette.routing",
    "mcp.server.auth",
    "mcp.server.auth.middleware",
    "mcp.server.auth.middleware.auth_context",
    "mcp.server.auth.middleware.bearer_auth",
    "mcp.server.auth.provider",
    "mcp.server.auth.routes",
    "mcp.server.auth.settings",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
    "mcp.server.transport_security",
)
"""The imports of the SDK's low-level server for its method ``streamable_http_app``, which is not used here."""


def import_sdk() -> None:
    """Import the parts of the SDK that the daemon uses. Only for the main program of a process."""
    hollow(*BARE)
    _with_late_models()
    _without_http()


def _with_late_models() -> None:
    """Let the protocol's models build their validators on first use: most are never used."""
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        import mcp_types.jsonrpc
        import mcp_types.methods  # noqa: F401
    finally:
        del BaseModel.model_config["defer_build"]


def _without_http() -> None:
    """Import the low-level server with stubs for `HTTP`; a daemon that serves HTTP imports the real modules."""
    with stubs(HTTP):
        import mcp.server.lowlevel.server  # noqa: F401
