"""Whether one policy would allow more than another: checked before the supervisor is asked.

The daemon compares, because it has the schema of policies in memory. The supervisor does not, and a worker that
tightens its walls can only add to the existing ones.
"""

from __future__ import annotations

from dataclasses import replace

from rlm_ipc.errors import PolicyLooser
from rlm_kernel.session_policy import read_policy
from rlm_sandbox.policy.compare import loosened
from rlm_sandbox.policy.model import Policy, without_language_wall


def refuse_looser(policy: Policy, bound: Policy) -> None:
    """Raise `PolicyLooser` if a policy allows more than another one in any field."""
    if fields := loosened(policy, bound):
        raise PolicyLooser(policy.name, bound.name, [f"{name}: {what}" for name, what in fields.items()])


def refuse_looser_fork(wanted: Policy, parent: str, *, but_language: bool = False) -> None:
    """Raise `PolicyLooser` if a fork under ``wanted`` could do more than its parent, whose policy is given as JSON.

    Both have real paths. With ``but_language`` the walls within the process do not count, and those of the system must
    be equal.
    """
    given = read_policy(parent)
    if but_language:
        given = replace(without_language_wall(given), language=wanted.language)
    refuse_looser(wanted, given)
