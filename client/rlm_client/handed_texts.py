"""Texts of this program, handed over to a session."""

from __future__ import annotations

import tempfile

from rlm_client.client import Client
from rlm_client.results import Context

__all__ = ["hand_over"]

_NO_PATH = "-"
"""What stands for standard input among paths: the text came from a program, and cannot be loaded again."""


def hand_over(client: Client, name: str, text: str, kind: str = "custom") -> Context:
    """Load a text in a file: in a call it would be bounded, and cost more. The file is not what it came from."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", errors="replace", newline="", prefix="rlm-") as file:
        file.write(text)
        file.flush()
        return client.load_context(name, file.name, content_type=kind, metadata={"path": _NO_PATH})
