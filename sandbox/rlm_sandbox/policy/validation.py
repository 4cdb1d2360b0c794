"""Checks what claims to be a policy, by pydantic and the rules of the schema."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import TypeAdapter

from rlm_sandbox.policy.model import Policy


def checked(values: object) -> Policy:
    """The policy with these values, as a file has them; raises pydantic's ValidationError."""
    return _adapter().validate_python(values)


def checked_json(text: str) -> Policy:
    """The policy that was written by `Policy.to_json`; raises pydantic's ValidationError."""
    return _adapter().validate_json(text)


def policy_schema() -> dict[str, Any]:
    """The JSON schema of a policy file, for editors that check YAML while one types."""
    return _adapter().json_schema()


@functools.cache
def _adapter() -> TypeAdapter[Policy]:
    return TypeAdapter(Policy)
