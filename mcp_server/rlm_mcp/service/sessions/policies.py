"""Which policy a session has: read once, kept as content in the session's row, and held to whenever it comes to life.

What a user configures may be the path of a file, what an agent chooses is a name. Neither is looked up again for a
session that has a policy: only `rlm-kernel policy apply` gives it another one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rlm_ipc import discovery
from rlm_kernel.fork_policy import refuse_looser
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.formats.snapshot import Manifest
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.names import workspace_for
from rlm_memory import sessions
from rlm_memory.sessions import PolicyText, SessionRow
from rlm_memory.store import Store
from rlm_sandbox.errors import PolicyError
from rlm_sandbox.policy import (
    WAYS_OUT,
    PinnedPolicy,
    Policy,
    digest_of,
    is_path,
    loosened,
    pin_policy,
    unpin,
    write_roots,
)

DEFAULT_POLICY = "default"
COMPAT = "compat"
"""The tool set of the first Context Kernel, and the policy with room for the answers that its programs expect."""


def policy_for(handshake: ClientInfo) -> str:
    """Return the name or path of the policy that a client's sessions begin with: the one it states, if it does."""
    usual = COMPAT if handshake.env.get("RLM_KERNEL_TOOLS") == COMPAT else DEFAULT_POLICY
    return handshake.env.get("RLM_KERNEL_POLICY") or usual


class Policies:
    """Reads policies, keeps their contents with the sessions, and compares."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def read(self, name_or_path: str, workspace: str) -> PinnedPolicy:
        """Read what the user has configured, for a session of that workspace; raises PolicyError."""
        writable = {*sessions.writable(self._store), discovery.runtime_folder()}
        return await asyncio.to_thread(pin_policy, name_or_path, writable=writable, workspace=workspace or None)

    async def chosen(self, name: str, workspace: str) -> PinnedPolicy:
        """Read what an agent has chosen; raises ToolFault for a path, and PolicyError."""
        if is_path(name):
            raise ToolFault(
                "policy_error",
                "a tool takes the name of a policy, not the path of a file",
                "name one that `rlm-kernel policy list` shows; to apply a file, the user runs "
                "`rlm-kernel policy apply SESSION PATH`",
            )
        return await self.read(name, workspace)

    async def of_snapshot(self, saved: Manifest, asked: str, workspace: str, *, ours: bool) -> PinnedPolicy:
        """Read the policy of a session that is restored: the one asked for, its own if we kept it, else the default.

        Raises:
            PolicyLooser: one was asked for that allows more than a session had that we kept.
            PolicyError: it cannot be read, or was not kept.
        """
        if not ours:
            return await self.read(asked or DEFAULT_POLICY, workspace)
        own = unpin(saved.policy_text, digest_of(saved.policy_text), saved.policy)
        if not asked:
            return own
        policy = await self.read(asked, workspace)
        refuse_looser(policy.policy, own.policy)
        return policy

    def admit(self, row: SessionRow, parent: Policy | None = None) -> tuple[PinnedPolicy, PinnedPolicy]:
        """Return the policy of a session that comes to life, and that of the first session of its family.

        Every session comes to life here, and has what its row holds. What it may write is noted, for good: no policy
        is read there.

        Raises:
            PolicyLostError: the row does not hold the policy.
            PolicyLooser: it allows more than its parent's, or than what the family first had.
        """
        policy = unpin(row.policy_text, row.policy_digest, row.policy)
        family = unpin(row.family_text, row.family_digest, row.policy)
        for bound in (family.policy, parent):
            if bound is not None:
                refuse_looser(policy.policy, bound)
        sessions.note_writable(self._store, write_roots(policy.policy, row.workspace))
        return policy, family

    def family_of(self, row: SessionRow) -> PinnedPolicy | None:
        """Return the policy of the first session of a session's family; None if it was not kept."""
        try:
            return unpin(row.family_text, row.family_digest, row.policy)
        except PolicyError:
            return None

    def looser_than(self, row: SessionRow, policy: Policy) -> list[str]:
        """What a policy permits that a session's own does not; of one that was not kept nothing is known."""
        try:
            before = unpin(row.policy_text, row.policy_digest, row.policy).policy
        except PolicyError:
            return []
        return [f"{name}: {what}" for name, what in loosened(policy, before).items()]

    async def refuse_client(
        self, row: SessionRow, policy: PinnedPolicy, family: Policy, handshake: ClientInfo, given: PinnedPolicy | None
    ) -> None:
        """Refuse a client whose own policy forbids what the session may do, or lets out what the session holds.

        ``given`` is the client's policy if it has been read.

        Raises:
            ToolFault: the session is not for this client.
            PolicyError: the client's policy cannot be read.
        """
        stated = handshake.env.get("RLM_KERNEL_POLICY")
        own = given or await self.read(policy_for(handshake), workspace_for(handshake))
        if is_path(own.origin) and own.origin == row.policy and own.digest != policy.digest:
            why = f"{own.origin} has changed since session {row.id} began; the session keeps the policy of that time"
            raise _conflict(row, why, f"rlm-kernel policy apply {row.id} {own.origin}")
        more = loosened(policy.policy, own.policy) if stated or given is not None else {}
        if more:
            why = f"session {row.id} runs under {row.policy!r}, which permits more than {own.origin!r}"
            why = f"{why}: {', '.join(more)}"
            raise _conflict(row, why, f"rlm-kernel policy apply {row.id} {own.origin}")
        if out := loosened(_without_scratch(own.policy), family, WAYS_OUT):
            why = f"what session {row.id} holds could leave by what {own.origin!r} permits: {', '.join(out)}"
            raise _conflict(row, why, f"rlm-kernel policy apply {row.id} {own.origin} --looser")


def as_row(policy: PinnedPolicy) -> PolicyText:
    """The policy as a row holds it."""
    return PolicyText(policy.origin, policy.text, policy.digest)


def _without_scratch(policy: Policy) -> Policy:
    """The policy without what lies in the session's own folder, which ends with it."""
    write = tuple(path for path in policy.files.write if not path.startswith("${scratch}"))
    return replace(policy, files=replace(policy.files, write=write))


def _conflict(row: SessionRow, why: str, command: str) -> ToolFault:
    return ToolFault(
        "policy_conflict",
        why,
        f"use another session id, or give this one the other policy: {command}",
        session=row.id,
        policy=row.policy,
    )
