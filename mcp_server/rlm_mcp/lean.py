"""Import some modules of a package without what the package's ``__init__`` imports beside them.

``mcp/__init__.py`` imports the SDK's client, its high-level server and the cryptography that this one signs with: 20 MB
of a daemon that uses none of them. A daemon is a process of our own, so it may say which halves it wants.
"""

from __future__ import annotations

import importlib.util
import sys

__all__ = ["BARE", "hollow"]

BARE = ("mcp", "mcp.server")
"""Packages of which the daemon needs single modules only."""


def hollow(*packages: str) -> None:
    """Let modules of ``packages`` be imported from now on while their ``__init__`` is not run.

    Only for the main program of a process: whoever looks for what the ``__init__`` defines finds nothing there.
    Packages that are imported already stay as they are.
    """
    for name in packages:
        spec = None if name in sys.modules else importlib.util.find_spec(name)
        if spec is not None:
            sys.modules[name] = importlib.util.module_from_spec(spec)
