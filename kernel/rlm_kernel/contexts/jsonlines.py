"""Let `json.dumps` write Lines as the list it stands for.

The json module has no registry of types.  Its encoders ask `JSONEncoder.default` for what they do not know,
and encoders with a `default` of their own end in that one too; so it is extended, once, in the kernel process
only.
"""

from __future__ import annotations

import json
from typing import Any

from .lines import Lines

_original = json.JSONEncoder.default


def _default(self: json.JSONEncoder, value: Any) -> Any:
    if isinstance(value, Lines):
        return list(value)
    return _original(self, value)


def support_json() -> None:
    """Extend `json.JSONEncoder` of this process; calling it again changes nothing."""
    if json.JSONEncoder.default is not _default:  # a kernel's classes of the standard library cannot be changed
        json.JSONEncoder.default = _default  # type: ignore[method-assign,assignment]
