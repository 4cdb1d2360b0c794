"""Hands texts of this program over to a session."""

from __future__ import annotations

import tempfile

from rlm_client.client import Client
from rlm_client.results import Context

__all__ = ["hand_over"]

_NO_PATH = "-"
"""Stands for standard input among paths: the text came from a program, and cannot be reloaded."""


def hand_over(client: Client, name: str, text: str, kind: str = "custom") -> Context:
    """Load a text through a temporary file: in a call its size would be limited, and it would cost more."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace", newline="", prefix="rlm-") as file:
        file.write(text)
        file.flush()
        return client.load_context(name, file.name, content_type=kind, metadata={"path": _NO_PATH})
