"""How kernels of sessions come to be: started, or forked from another session's."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from rlm_ipc import discovery
from rlm_ipc.errors import SupervisorGone
from rlm_ipc.kernel_reports import ForkInfo, KernelInfo
from rlm_ipc.messages import Json
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.sessions.bound_contexts import BoundContexts
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_memory import queries, sessions
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store
from rlm_sandbox.policy import PinnedPolicy, without_language_wall


def runs_under(kernel: KernelInfo | None, policy: PinnedPolicy) -> bool:
    """Whether there is a kernel, and it was started under that policy."""
    return kernel is not None and kernel.label.get("policy") == policy.digest


class KernelStart:
    """Asks the supervisor for kernels."""

    def __init__(self, store: Store, gateway: KernelGateway) -> None:
        self._store = store
        self._gateway = gateway

    async def spawn(self, row: SessionRow, policy: PinnedPolicy) -> KernelInfo:
        """Start a kernel."""
        request = self._request(row, row.id, _label(row.id, row.key, policy))
        try:
            return await (await self._gateway.client()).spawn(request, policy.policy, writable=self._writable())
        except SupervisorGone:
            # The supervisor ended since it was last used: one more try with a new one.
            return await (await self._gateway.client()).spawn(request, policy.policy, writable=self._writable())

    async def fork(self, kernel_id: str, parent: SessionRow, name: str, key: int, policy: PinnedPolicy) -> ForkInfo:
        """Fork a kernel of ``parent`` for another session, of that name and key."""
        request = self._request(parent, name, _label(name, key, policy))
        client = await self._gateway.client()
        return await client.fork(kernel_id, request, policy.policy, writable=self._writable())

    async def copy(self, kernel_id: str, row: SessionRow, policy: PinnedPolicy, attachment: str) -> str:
        """Fork a kernel without its language wall, for the front end at an attachment; returns the copy's kernel id."""
        label = {"copy_of": row.key, "attachment": attachment, "policy": policy.digest}
        request = replace(self._request(row, row.id, label), connection_file=None, trusted=True)
        client, rules = await self._gateway.client(), without_language_wall(policy.policy)
        return (await client.fork(kernel_id, request, rules, writable=self._writable())).kernel.kernel_id

    @asynccontextmanager
    async def trial(self, row: SessionRow, policy: PinnedPolicy) -> AsyncIterator[tuple[SupervisorClient, str]]:
        """A kernel like that of the session, with its contexts; it ends with the block."""
        request = self._request(row, row.id, {"trial_of": row.key, "policy": policy.digest})
        request = replace(request, connection_file=None, owned=True)
        client = await self._gateway.client()
        info = await client.spawn(request, policy.policy, writable=self._writable())
        try:
            await BoundContexts(self._store, row.key, self._gateway.texts).catch_up(client, info.kernel_id)
            yield client, info.kernel_id
        finally:
            await self._gateway.discard(info)

    def _request(self, row: SessionRow, session: str, label: Mapping[str, Json]) -> SpawnRequest:
        kernel_id = secrets.token_hex(8)
        return SpawnRequest(
            kernel_id=kernel_id,
            workspace=row.workspace or None,
            connection_file=str(discovery.runtime_dir() / "connections" / f"{kernel_id}.json"),
            query_base=queries.next_in_code(self._store, session),
            label={**label, "owner": self._gateway.owner},
        )

    def _writable(self) -> frozenset[str]:
        """The folders that any session may write."""
        return frozenset(sessions.writable(self._store))


def _label(session: str, key: int, policy: PinnedPolicy) -> dict[str, Json]:
    return {"session": session, "key": key, "policy": policy.digest}
