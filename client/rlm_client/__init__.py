"""The Python client of rlm-kernel: sessions, the RLM loop and the models that answer it.

Public names are imported on first use, because the front imports modules of this package at its start.
"""

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the 5 ms of importing typing
if TYPE_CHECKING:
    from typing import Any

    from rlm_client.async_client import AsyncClient
    from rlm_client.client import Client
    from rlm_client.jcode import JCodeClient
    from rlm_client.rlm.budget import RunLimits
    from rlm_client.rlm.rlm import RLM

__all__ = ["RLM", "AsyncClient", "Client", "JCodeClient", "RunLimits"]

_HOMES = {
    "AsyncClient": "rlm_client.async_client",
    "Client": "rlm_client.client",
    "JCodeClient": "rlm_client.jcode",
    "RunLimits": "rlm_client.rlm.budget",
    "RLM": "rlm_client.rlm.rlm",
}
"""Where each public name lives."""


def __getattr__(name: str) -> "Any":
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
