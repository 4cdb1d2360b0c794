"""Checks untrusted values for a policy, with pydantic and the rules of the schema."""

from __future__ import annotations

import functools
from typing import Any

from pydantic import TypeAdapter

from rlm_sandbox.policy.model import Policy


def checked(values: object) -> Policy:
    """Return the policy with these values, as a file has them; raises pydantic's ValidationError."""
    return _adapter().validate_python(values)


def checked_json(text: str) -> Policy:
    """Return the policy that `Policy.to_json` wrote; raises pydantic's ValidationError."""
    return _adapter().validate_json(text)


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy file, for editors that check YAML during typing."""
    return _adapter().json_schema()


@functools.cache
def _adapter() -> TypeAdapter[Policy]:
    return TypeAdapter(Policy)
