"""Whether the console in which a person called `exit` may end its kernel: only the one that started it may."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlm_ipc.framing import json_part
from rlm_ipc.jupyter_wire import DELIMITER

OWNER = "client"
"""The label of a kernel that names the Jupyter session of the client that started it."""
_ASKS = b'"ask_exit"'


def told_to_end(parts: Sequence[bytes], owner: str) -> Sequence[bytes]:
    """Return a kernel's reply as its client gets it.

    A reply that says to leave tells the ``owner`` that the kernel ends too.

    A kernel knows nobody's names, and tells every console to keep it.
    """
    if not owner or not any(_ASKS in part for part in parts):
        return parts
    try:
        at = parts.index(DELIMITER)
        parent, content = json.loads(parts[at + 3]), json.loads(parts[at + 5])
        if parent["session"] != owner:
            return parts
        payload = [{**item, "keepkernel": False} if _leaves(item) else item for item in content["payload"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        return parts
    return [*parts[: at + 5], json_part({**content, "payload": payload}), *parts[at + 6 :]]


def _leaves(item: object) -> bool:
    return isinstance(item, dict) and item.get("source") == "ask_exit"
