"""Bounds of a JSON schema that a query may carry.

The worker that asks checks them, and so does the supervisor, which trusts no worker.
"""

from __future__ import annotations

import json

LONGEST_SCHEMA = 65_536
"""Characters of a schema as JSON."""
DEEPEST_SCHEMA = 64
"""Levels of a schema."""


def fault_of(schema: object) -> str:
    """Return why a schema cannot be passed on; empty if it can.

    The supervisor also checks the schemas that kernels send.
    """
    if not isinstance(schema, dict):
        return "the schema must be a JSON object"
    level: list[object] = [schema]
    for _ in range(DEEPEST_SCHEMA):
        inner = [part for part in level if isinstance(part, dict | list | tuple)]
        level = [value for part in inner for value in (part.values() if isinstance(part, dict) else part)]
    if any(isinstance(part, dict | list | tuple) for part in level):
        return f"the schema is nested too deeply: it has more than {DEEPEST_SCHEMA} levels"
    size = len(json.dumps(schema))
    return f"the schema has {size:,} characters; at most {LONGEST_SCHEMA:,} are sent" if size > LONGEST_SCHEMA else ""
