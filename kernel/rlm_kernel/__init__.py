"""The Jupyter side of rlm-kernel: contexts, kernel processes and the host that owns them, and the Python client.

What is public is imported when it is asked for: the processes that import this package at their start need none of it.
"""

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from typing import Any

    from rlm_kernel.client import Client
    from rlm_kernel.client_async import AsyncClient
    from rlm_kernel.recursion.budget import Limits
    from rlm_kernel.recursion.rlm import RLM

__all__ = ["RLM", "AsyncClient", "Client", "Limits"]

_HOMES = {
    "AsyncClient": "rlm_kernel.client_async",
    "Client": "rlm_kernel.client",
    "Limits": "rlm_kernel.recursion.budget",
    "RLM": "rlm_kernel.recursion.rlm",
}
"""Where each public name lives."""


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
