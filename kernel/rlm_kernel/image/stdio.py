"""Where ``sys.stdout`` and ``sys.stderr`` of a kernel go, and the session and sockets of its ipykernel."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from jupyter_client.session import Session

from rlm_kernel.tags import SHOWN, STDOUT
from rlm_kernel.wire import Frame, Link


class LinkSocket:
    """What stands in for a zmq socket: `jupyter_client.session.Session.send` only needs ``send_multipart``."""

    def __init__(self, link: Link, tag: bytes) -> None:
        self.link = link
        self.tag = tag

    def send_multipart(self, frames: Sequence[Frame], *_args: Any, **_options: Any) -> None:
        """Hand the frames of one Jupyter message to the host."""
        self.link.send(self.tag, frames)


class LinkSession(Session):
    """Jupyter's session, without a key: the host signs what leaves and checks what comes.

    While it is ``bare``, messages leave without envelope: kind, content and metadata only. That is for cells
    of a caller of the host, who needs no header, signature or status; the host makes Jupyter messages of what they show
    when somebody watches.
    """

    def __init__(self, link: Link, **options: Any) -> None:
        super().__init__(**options)
        self.link = link
        self.bare = False

    def msg(self, msg_type: str, content: Any = None, *args: Any, **options: Any) -> dict[str, Any]:
        """Make a message."""
        if not self.bare:
            return dict(super().msg(msg_type, content, *args, **options))
        return {"msg_type": msg_type, "content": content or {}, "metadata": options.get("metadata") or {}}

    def send(
        self, stream: Any, msg_or_type: Any, content: Any = None, *args: Any, buffers: Any = None, **options: Any
    ) -> Any:
        """Send a message, of `msg` or made here, on one of the `LinkSocket`."""
        if not self.bare:
            return super().send(stream, msg_or_type, content, *args, buffers=buffers, **options)
        message = msg_or_type if isinstance(msg_or_type, dict) else self.msg(msg_or_type, content, **options)
        shown = {"kind": message["msg_type"], "content": message["content"], "metadata": message["metadata"]}
        # The value of a cell is followed by its reply.
        self.link.send(SHOWN, (self.pack(shown), *(buffers or ())), later=shown["kind"] == "execute_result")
        return message


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
