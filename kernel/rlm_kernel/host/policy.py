"""A session's policy as the host reads it: its values, without the schema and the library behind it.

The daemon has validated it, and the kernel will once more; the host only looks up limits. What pydantic would take here
is a quarter of the host's memory.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from rlm_sandbox.policy_model import Policy

__all__ = ["read_policy"]


def read_policy(text: str) -> Policy:
    """The fields of a policy, of its JSON: to be read, and nothing else."""
    return cast("Policy", json.loads(text, object_hook=lambda fields: SimpleNamespace(**fields)))
