"""The wire format of Jupyter messages, as far as the supervisor itself speaks it: building, signing and checking.

https://jupyter-client.readthedocs.io/en/stable/messaging.html, "The wire protocol". jupyter_client's own `Session` does
this too, but what it imports is a fifth of the supervisor's memory.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import json
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from rlm_ipc.framing import json_part
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject

DELIMITER = b"<IDS|MSG>"
PROTOCOL_VERSION = "5.4"
REMEMBERED = 65_536
"""Signatures kept in order to refuse a repeated message; beyond that number the older half is forgotten."""


@dataclass(frozen=True, slots=True)
class Received:
    """A client's message with a valid signature. ``header`` is unchanged, for messages that answer it."""

    identities: list[bytes]
    kind: str
    header: bytes
    content: JsonObject


class Signer:
    """Builds and checks messages with ``key`` (HMAC-SHA256); with an empty key nothing is signed."""

    def __init__(self, key: bytes) -> None:
        self._hmac = hmac.new(key, digestmod=hashlib.sha256) if key else None
        self._session = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._seen: dict[bytes, None] = {}

    def header(self, kind: str) -> bytes:
        """Return the header of a new message."""
        return json_part(
            {
                "msg_id": f"{self._session}_{next(self._numbers)}",
                "msg_type": kind,
                "username": "rlm-kernel",
                "session": self._session,
                "date": datetime.now(UTC).isoformat(),
                "version": PROTOCOL_VERSION,
            }
        )

    def parts(
        self, kind: str, parent_header: bytes, content: JsonObject, metadata: JsonObject | None = None
    ) -> list[bytes]:
        """Return a message, from its delimiter on, that answers the request with ``parent_header``."""
        parts = [self.header(kind), parent_header, json_part(metadata or {}), json_part(content)]
        return [DELIMITER, self.sign(parts), *parts]

    def sign(self, parts: Sequence[bytes]) -> bytes:
        """Return the signature of header, parent header, metadata and content."""
        if self._hmac is None:
            return b""
        digest = self._hmac.copy()
        for part in parts:
            digest.update(part)
        return digest.hexdigest().encode()

    def signed(self, parts: Sequence[bytes], *, again: bool = False) -> list[bytes] | None:
        """Sign a message of a kernel, which has no key; None if the message is malformed.

        A message that clients may already have is sent ``again`` with another signature: a client that sees the same
        signature twice takes it for a replay and raises an error.
        """
        if not well_formed(parts):
            return None
        at = parts.index(DELIMITER)
        if again:  # a space after the metadata changes the signature, but not the message
            parts = [*parts[: at + 4], parts[at + 4] + b" ", *parts[at + 5 :]]
        return [*parts[: at + 1], self.sign(parts[at + 2 : at + 6]), *parts[at + 2 :]]

    def genuine(self, parts: Sequence[bytes]) -> bool:
        """Whether a message has the right signature and was not seen before; ask only once for each."""
        if not well_formed(parts):
            return False
        if self._hmac is None:
            return True
        at = parts.index(DELIMITER)
        signature = parts[at + 1]
        if not hmac.compare_digest(signature, self.sign(parts[at + 2 : at + 6])) or signature in self._seen:
            return False
        self._remember(signature)
        return True

    def read(self, parts: Sequence[bytes]) -> Received | None:
        """Return a message with its routing prefix; None if it is malformed, forged or repeated."""
        if not well_formed(parts):
            return None
        at = parts.index(DELIMITER)
        try:
            header, content = json.loads(parts[at + 2]), json.loads(parts[at + 5])
            kind = header["msg_type"]
        except (ValueError, LookupError, TypeError, RecursionError):
            return None
        if not isinstance(kind, str) or not isinstance(content, dict) or not self.genuine(parts):
            return None
        return Received(list(parts[:at]), kind, parts[at + 2], content)

    def _remember(self, signature: bytes) -> None:
        self._seen[signature] = None
        if len(self._seen) > REMEMBERED:
            for old in list(itertools.islice(self._seen, REMEMBERED // 2)):
                del self._seen[old]


def well_formed(parts: Sequence[bytes]) -> bool:
    """True if ``parts`` have the shape of a Jupyter message: prefix, delimiter, signature and four dicts."""
    return DELIMITER in parts and len(parts) >= parts.index(DELIMITER) + 6


def object_in(parts: Sequence[bytes], at: int) -> JsonObject:
    """Return the part that far after the delimiter (2 the header, 5 the content); empty if it is not an object."""
    try:
        found = json.loads(parts[list(parts).index(DELIMITER) + at])
    except (ValueError, LookupError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
