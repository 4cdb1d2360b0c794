"""The form in which code wants an answer: a JSON schema, or a pydantic model that has one.

The daemon checks an answer against the schema before it accepts it. Here the answer is read, and a pydantic model's own
validators run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rlm_ipc.answer_schema import fault_of


class AnswerSchema:
    """The value of ``schema=``. The attribute ``schema`` is plain JSON."""

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
        """Return the content of the answer; raises ValueError if the model does not accept it."""
        return json.loads(text) if self._model is None else self._model.model_validate_json(text)

    def complaint(self, text: str) -> str:
        """Return why the answer cannot be read; empty if it can."""
        try:
            self.read(text)
        except ValueError as error:
            return str(error)[:2000]
        return ""
