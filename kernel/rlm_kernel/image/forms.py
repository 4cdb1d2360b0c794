"""The form that code wants an answer in: a JSON schema, or a pydantic model from which there is one.

Whoever takes the answer holds it against the schema; here it is read, and a model's own validators have their say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

LONGEST_SCHEMA = 65_536
"""Characters of a schema as JSON."""
DEEPEST_SCHEMA = 64
"""Levels of a schema."""


class Form:
    """What ``schema=`` was given as. ``schema`` is plain JSON."""

    def __init__(self, wanted: object) -> None:
        make = getattr(wanted, "model_json_schema", None) if isinstance(wanted, type) else None
        self._model: Any = wanted if callable(make) else None
        described = make() if callable(make) else wanted
        if not isinstance(described, Mapping):
            raise TypeError("schema must be a JSON schema (a dict) or a pydantic model (a class)")
        schema = dict(described)
        if fault := fault_of(schema):
            raise ValueError(fault)
        self.schema: dict[str, Any] = json.loads(json.dumps(schema))

    def read(self, text: str) -> Any:
        """Return what the answer says; raises ValueError when the model does not take it."""
        return json.loads(text) if self._model is None else self._model.model_validate_json(text)

    def complaint(self, text: str) -> str:
        """Say why the answer cannot be read; empty if it can."""
        try:
            self.read(text)
        except ValueError as error:
            return str(error)[:2000]
        return ""


def fault_of(schema: object) -> str:
    """Why a schema is none that is passed on; empty if it is. The host asks this too, of what a kernel has sent."""
    if not isinstance(schema, dict):
        return "the schema is no object"
    level: list[object] = [schema]
    for _ in range(DEEPEST_SCHEMA):
        inner = [part for part in level if isinstance(part, dict | list | tuple)]
        level = [value for part in inner for value in (part.values() if isinstance(part, dict) else part)]
    if any(isinstance(part, dict | list | tuple) for part in level):
        return f"the schema is nested too deeply: it has more than {DEEPEST_SCHEMA} levels"
    size = len(json.dumps(schema))
    return f"the schema has {size:,} characters; at most {LONGEST_SCHEMA:,} are sent" if size > LONGEST_SCHEMA else ""
