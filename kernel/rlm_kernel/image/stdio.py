"""Where ``sys.stdout`` and ``sys.stderr`` of a kernel go, and the sockets that ipykernel believes it has."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from rlm_kernel.tags import STDOUT
from rlm_kernel.wire import Frame, Link


class LinkSocket:
    """What stands in for a zmq socket: `jupyter_client.session.Session.send` only needs ``send_multipart``."""

    def __init__(self, link: Link, tag: bytes) -> None:
        self.link = link
        self.tag = tag

    def send_multipart(self, frames: Sequence[Frame], *_args: Any, **_options: Any) -> None:
        """Hand the frames of one Jupyter message to the host."""
        self.link.send(self.tag, frames)


class TextStream(io.TextIOBase):
    """A text stream that hands every write to the host at once.

    Unbuffered on purpose: what was printed before a crash has left the process. The host gathers the pieces.
    """

    def __init__(self, link: Link, tag: bytes) -> None:
        self.link = link
        self.tag = tag
        self.name = "<stdout>" if tag == STDOUT else "<stderr>"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Text leaves as UTF-8; a lone surrogate is written as ``?``."""
        return "utf-8"

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Send ``text``; returns its length in characters."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self.link.send(self.tag, (text.encode("utf-8", "replace"),))
        return len(text)

    def set_parent(self, parent: dict[str, Any]) -> None:
        """Part of ipykernel's stream interface; the host knows which cell runs."""
