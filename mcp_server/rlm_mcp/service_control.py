"""What an agent can ask and do about its session as a whole: status, interrupt, restart, end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from rlm_kernel.errors import KernelError
from rlm_kernel.hostclient import KernelInfo
from rlm_mcp.service_answers import Answer, moment
from rlm_mcp.service_kernels import KernelGateway
from rlm_mcp.service_runs import Runs
from rlm_mcp.service_sessions import Session, Sessions
from rlm_memory import contexts, queries
from rlm_memory.store import Store

__all__ = ["Control"]


class Control:
    """The life of sessions, as the tools see it."""

    def __init__(self, store: Store, sessions: Sessions, runs: Runs, gateway: KernelGateway) -> None:
        self._store = store
        self._sessions = sessions
        self._runs = runs
        self._gateway = gateway

    async def status(self, session: Session) -> Answer:
        """Describe the session: policy, kernel, walls, memory, content, runs, pending queries."""
        limits = session.policy.limits
        fields: dict[str, Any] = {
            "session": session.id,
            "policy": session.row.policy,
            "workspace": session.row.workspace or None,
            "created": moment(session.row.created_at),
            "kernel": await self._kernel(session),
            "contexts": len(contexts.names(self._store, session.id)),
            "content_bytes": contexts.charged_bytes(self._store, session.id),
            "runs": {run.id: run.state for run in self._runs.active(session)},
            "pending_llm_queries": [row.id for row in queries.pending(self._store, session.id)],
            "limits": {
                "content_bytes": limits.content_bytes,
                "memory_bytes": limits.memory_bytes,
                "cell_seconds": limits.cell_seconds,
                "idle_seconds": limits.idle_seconds,
            },
        }
        if session.kernel.notice:
            fields["notice"] = session.kernel.notice
        return Answer(fields, ("pending_llm_queries", "kernel"))

    def row(self, session: Session) -> dict[str, Any]:
        """The session in one line: what a person picks it by, and what opens it in a notebook."""
        info = session.kernel.info
        return {
            "session": session.id,
            "policy": session.row.policy,
            "workspace": session.row.workspace or "",
            "contexts": len(contexts.names(self._store, session.id)),
            "content_bytes": contexts.charged_bytes(self._store, session.id),
            "kernel": "not started" if info is None else "busy" if session.kernel.busy else "idle",
            "last_used": moment(session.last_used),
            "connection_file": "" if info is None else info.connection_file or "",
        }

    async def interrupt(self, session: Session) -> Answer:
        """Interrupt the running code and what waits behind it; variables stay."""
        return Answer({"session": session.id, "interrupted": await self._runs.interrupt(session)})

    async def restart(self, session: Session) -> Answer:
        """Begin anew: variables that code made are gone, loaded contexts stay."""
        interrupted = await self._runs.interrupt(session)
        await session.kernel.restart()
        kept = contexts.names(self._store, session.id)
        return Answer({"session": session.id, "restarted": True, "interrupted": interrupted, "contexts": kept})

    async def end(self, session: Session) -> Answer:
        """End the session with everything in it; pending queries are cancelled. Its id can be used again."""
        self._runs.drop(session.id)
        dropped = await self._sessions.end(session)
        return Answer({"ended": session.id, "unloaded": dropped}, ("unloaded",))

    async def end_orphans(self, kernels: list[KernelInfo]) -> None:
        """End kernels of sessions that are no more: their rows ended while no daemon was there."""
        for info in kernels:
            with suppress(KernelError, OSError):
                await (await self._gateway.client(start=False)).shutdown(info.kernel_id)

    async def _kernel(self, session: Session) -> dict[str, Any]:
        """The kernel as the host sees it now; only its state when there is none or the host does not say."""
        if not session.kernel.alive:
            return {"state": "not started"}
        try:
            info: KernelInfo = await session.kernel.ask(lambda client, kid: client.kernel_info(kid))
        except KernelError as error:
            return {"state": "gone", "reason": str(error)}
        return {
            "state": info.state,
            "pid": info.pid,
            "memory_bytes": info.memory_bytes,
            "checkpoint": info.checkpoint,
            "connection_file": info.connection_file,
            "scratch": info.scratch,
            "walls": info.walls,
        }
