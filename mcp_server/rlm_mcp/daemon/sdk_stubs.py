"""Import the MCP SDK without what the daemon does not use of it: a process of our own may say what it wants.

``mcp/__init__.py`` imports the SDK's client, its high-level server and the cryptography that this one signs with; its
low-level server the web server and the authentication of its HTTP transport, which few daemons are ever asked for; and
each of its five hundred models builds what it validates with. That is 27 MB of a daemon that uses none of it.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

BARE = ("mcp", "mcp.server")
"""Packages of which the daemon needs single modules only."""
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
"""What the SDK's low-level server imports for its method ``streamable_http_app``, which is not used here."""


def import_sdk() -> None:
    """Import what the daemon uses of the SDK, for good. Only for the main program of a process."""
    hollow(*BARE)
    _with_late_models()
    _without_http()


def hollow(*packages: str) -> None:
    """Let modules of ``packages`` be imported from now on while their ``__init__`` is not run.

    Only for the main program of a process: whoever looks for what the ``__init__`` defines finds nothing there.
    Packages that are imported already stay as they are.
    """
    for name in packages:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            sys.modules[name] = importlib.util.module_from_spec(spec)


def _with_late_models() -> None:
    """Have the models of the protocol build what they validate with when they are first used: most never are."""
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True
    try:
        import mcp_types.jsonrpc
        import mcp_types.methods  # noqa: F401
    finally:
        del BaseModel.model_config["defer_build"]


def _without_http() -> None:
    """Import the low-level server with stand-ins for `HTTP`: whoever opens that attachment imports it in earnest."""
    absent = [name for name in HTTP if name not in sys.modules]
    sys.modules.update({name: _StandIn(name) for name in absent})
    try:
        import mcp.server.lowlevel.server  # noqa: F401
    finally:
        for name in absent:
            del sys.modules[name]


class _StandIn(ModuleType):
    """A module of which anything can be imported; nothing of it is of any use."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})
