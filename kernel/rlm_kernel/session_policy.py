"""A session's policy as the supervisor and kernels receive it: as text, which the daemon has checked."""

from __future__ import annotations

import json

from rlm_ipc import messages
from rlm_ipc.errors import CallerError, ProtocolError
from rlm_sandbox.policy.model import Policy


def read_policy(text: str) -> Policy:
    """Read what `Policy.to_json` wrote; raises CallerError if it is not a policy.

    Each value has the type of its field. The reader of the file has checked that it follows the rules of the schema.
    """
    try:
        return messages.read_known(Policy, json.loads(text))  # another version's policy may have more fields
    except (ValueError, RecursionError, ProtocolError) as error:
        raise CallerError(f"the session's policy cannot be read: {error}") from error
