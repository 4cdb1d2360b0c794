"""The output of a kernel: ``sys.stdout`` and ``sys.stderr``, and the Jupyter session and sockets of its ipykernel."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from traitlets import Any as AnyTrait

from rlm_ipc.framing import Frame, SupervisorLink
from rlm_ipc.messages import JsonObject
from rlm_ipc.worker_protocol import STDOUT, Shown

_as_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=json_default).encode
"""What `LinkSession.pack` does first. It makes an encoder for each message, which takes longer than a short one."""


class LinkSocket:
    """Stands in for a zmq socket: `jupyter_client.session.Session.send` needs only ``send_multipart``.

    A worker without zmq has no threads, can be forked, and needs no ``socket()`` call behind its seccomp filter.
    """

    def __init__(self, link: SupervisorLink, tag: bytes) -> None:
        self.link = link
        self.tag = tag

    def send_multipart(self, parts: Sequence[Frame], *_args: Any, **_options: Any) -> None:
        """Hand the parts of one Jupyter message to the supervisor."""
        self.link.send(self.tag, parts)


class LinkSession(Session):
    """Jupyter's session, without a key: the supervisor signs what leaves and checks what arrives.

    While it is ``bare``, messages leave without an envelope: kind, content and metadata only. Cells that come through
    the supervisor need no header, signature or status. The supervisor makes Jupyter messages from them if someone
    watches.
    """

    context = AnyTrait()  # the base class imports zmq for its own

    def __init__(self, link: SupervisorLink, **options: Any) -> None:
        super().__init__(packer="json", **options)
        self.link = link
        self.bare = False

    def msg(self, msg_type: str, content: Any = None, *args: Any, **options: Any) -> JsonObject:
        """Make a message."""
        if not self.bare:
            return dict(super().msg(msg_type, content, *args, **options))
        return {"msg_type": msg_type, "content": content or {}, "metadata": options.get("metadata") or {}}

    def send(
        self, stream: Any, msg_or_type: Any, content: Any = None, *args: Any, buffers: Any = None, **options: Any
    ) -> Any:
        """Send a message, from `msg` or created here, on one of the `LinkSocket`s."""
        if not self.bare:
            return super().send(stream, msg_or_type, content, *args, buffers=buffers, **options)
        message = msg_or_type if isinstance(msg_or_type, dict) else self.msg(msg_or_type, content, **options)
        self.show(message["msg_type"], message["content"], message["metadata"], buffers or ())
        return message

    def show(self, kind: str, content: JsonObject, metadata: Any, buffers: Sequence[Frame] = ()) -> None:
        """Send a `Shown`."""
        shown = {"kind": kind, "content": content, "metadata": metadata if isinstance(metadata, dict) else {}}
        try:
            part = _as_json(shown).encode("utf-8", "surrogateescape")
        except (TypeError, ValueError):
            part = self.pack(shown)
        # The reply follows a cell's value at once, so both can leave in one write.
        self.link.send(Shown.TAG, (part, *buffers), later=kind == "execute_result")


class TextStream(io.TextIOBase):
    """A text stream that hands every write to the supervisor at once.

    It is unbuffered on purpose: text that was printed before a crash has left the process. The supervisor gathers the
    pieces.
    """

    def __init__(self, link: SupervisorLink, tag: bytes) -> None:
        self.link = link
        self.tag = tag
        self.name = "<stdout>" if tag == STDOUT else "<stderr>"

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding: text leaves as UTF-8; a lone surrogate is written as ``?``."""
        return "utf-8"

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Send ``text``. Return its length in characters."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if text:
            self.link.send(self.tag, (text.encode("utf-8", "replace"),))
        return len(text)

    def set_parent(self, parent: JsonObject) -> None:
        """Part of ipykernel's stream interface; the supervisor knows which cell runs."""
