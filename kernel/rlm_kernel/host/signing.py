"""The wire format of Jupyter messages, as far as the host itself speaks it: made, signed, and checked.

https://jupyter-client.readthedocs.io/en/stable/messaging.html, "The wire protocol". jupyter_client's own `Session` does
this too; with what it imports it is a fifth of the host's memory.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rlm_kernel.wire import json_frame

DELIMITER = b"<IDS|MSG>"
PROTOCOL_VERSION = "5.4"
REMEMBERED = 65_536
"""Signatures that are kept, to refuse a message that comes a second time; then the older half is forgotten."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a client whose signature is right. ``header`` is as it came, for messages that answer it."""

    identities: list[bytes]
    kind: str
    header: bytes
    content: dict[str, Any]


class Signer:
    """Makes and checks messages with ``key`` (HMAC-SHA256); an empty one means that nothing is signed."""

    def __init__(self, key: bytes) -> None:
        self._hmac = hmac.new(key, digestmod=hashlib.sha256) if key else None
        self._session = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._seen: dict[bytes, None] = {}

    def header(self, kind: str) -> bytes:
        """The header of a new message."""
        return json_frame(
            {
                "msg_id": f"{self._session}_{next(self._numbers)}",
                "msg_type": kind,
                "username": "rlm-kernel",
                "session": self._session,
                "date": datetime.now(UTC).isoformat(),
                "version": PROTOCOL_VERSION,
            }
        )

    def frames(
        self, kind: str, parent_header: bytes, content: dict[str, Any], metadata: dict[str, Any] | None = None
    ) -> list[bytes]:
        """A message from its delimiter on, which answers the request with ``parent_header``."""
        parts = [self.header(kind), parent_header, json_frame(metadata or {}), json_frame(content)]
        return [DELIMITER, self.sign(parts), *parts]

    def sign(self, parts: Sequence[bytes]) -> bytes:
        """The signature of header, parent header, metadata and content."""
        if self._hmac is None:
            return b""
        digest = self._hmac.copy()
        for part in parts:
            digest.update(part)
        return digest.hexdigest().encode()

    def signed(self, frames: Sequence[bytes]) -> list[bytes] | None:
        """A message of a kernel, which has no key, with its signature; None if it is none."""
        if not well_formed(frames):
            return None
        at = frames.index(DELIMITER)
        return [*frames[: at + 1], self.sign(frames[at + 2 : at + 6]), *frames[at + 2 :]]

    def genuine(self, frames: Sequence[bytes]) -> bool:
        """Whether a message has the right signature, and has not come before; each is asked about once."""
        if not well_formed(frames):
            return False
        if self._hmac is None:
            return True
        at = frames.index(DELIMITER)
        signature = frames[at + 1]
        if not hmac.compare_digest(signature, self.sign(frames[at + 2 : at + 6])) or signature in self._seen:
            return False
        self._remember(signature)
        return True

    def read(self, frames: Sequence[bytes]) -> Received | None:
        """A message with its routing prefix; None if it is malformed, forged, or has come before."""
        if not well_formed(frames):
            return None
        at = frames.index(DELIMITER)
        try:
            header, content = json.loads(frames[at + 2]), json.loads(frames[at + 5])
            kind = header["msg_type"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        if not isinstance(kind, str) or not isinstance(content, dict) or not self.genuine(frames):
            return None
        return Received(list(frames[:at]), kind, frames[at + 2], content)

    def _remember(self, signature: bytes) -> None:
        self._seen[signature] = None
        if len(self._seen) > REMEMBERED:
            for old in list(itertools.islice(self._seen, REMEMBERED // 2)):
                del self._seen[old]


def well_formed(frames: Sequence[bytes]) -> bool:
    """True if ``frames`` have the shape of a Jupyter message: prefix, delimiter, signature and four dicts."""
    return DELIMITER in frames and len(frames) >= frames.index(DELIMITER) + 6
