"""Takes over, when a daemon starts, the kernels of an earlier one, and the remains of ended kernels."""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from rlm_ipc import left_kernels
from rlm_ipc.errors import KernelError
from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.left_kernels import LeftFile, LeftKernel
from rlm_mcp.errors import ClientFault
from rlm_mcp.service.session_events import Events, Parts
from rlm_mcp.service.sessions.kernel_start import runs_under
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_memory import queries, sessions
from rlm_memory.errors import StoreFault
from rlm_memory.journal import Author
from rlm_memory.store import Store

log = logging.getLogger(__name__)


class TakingOver:
    """Takes over the kernels of open sessions. ``left`` is where supervisors leave data of ended kernels."""

    def __init__(self, parts: Parts, events: Events, store: Store, gateway: KernelGateway, left: Path) -> None:
        self._parts, self._events, self._store, self._gateway, self._left = parts, events, store, gateway, left

    async def kernels(self) -> Collection[str]:
        """Take over live kernels, and end unknown ones. Return the ids of all of them."""
        live, copies = await self._gateway.adopt()
        found = {info.kernel_id for info in live.values()}
        for session in self._parts.sessions:
            self._parts.attachments.publish(session)
            if runs_under(live.get(session.key), session.pinned) and (info := await self._now(live.pop(session.key))):
                await self._adopt(session, info)
            else:
                self._tell_loss(session)
                self._parts.providers.give_up(session)
        for orphan in (*live.values(), *await self._parts.attachments.adopt(copies)):
            await self._gateway.discard(orphan)
        return found

    async def _now(self, info: KernelInfo) -> KernelInfo | None:
        """Return the current state of a kernel, which may have changed since it was listed; None if it has ended."""
        with suppress(KernelError, OSError):
            return await (await self._gateway.client(start=False)).kernel_info(info.kernel_id)
        return None

    async def _adopt(self, session: Session, info: KernelInfo) -> None:
        """Take over a kernel, and record what it did while no daemon ran."""
        session.kernel.adopt(info)
        session.kernel.budget_changed()  # it may not know what was used last
        with suppress(ClientFault, OSError):
            if info.anew_at:
                await self._parts.snapshots.reopening.began_anew(session, info.anew_at)
            if ended := await self._parts.snapshots.reopening.not_saved(session):
                self._events.durable.changed(session, ended)
        with suppress(KernelError, OSError):
            client = await self._gateway.client(start=False)
            self._parts.queries.note(session, await client.pending_queries(info.kernel_id))
            self._parts.providers.asked(session, queries.pending(self._store, session.key))
            # First what runs: a cell that ends meanwhile is among those that have ended, at least.
            cell = (await client.running(info.kernel_id)).cell
            claimed = client.claim(info.kernel_id, cell.run) if cell is not None and cell.run else None
            for note in await client.cells(info.kernel_id, self._parts.journal.last_serial(info.kernel_id)):
                self._parts.journal.told(session.key, info.kernel_id, note)
                if note.author == Author.AGENT.value and (cell is None or note.started != cell.since):
                    self._parts.runs.ended(session, note)
            session.kernel.refresh(await client.kernel_info(info.kernel_id))  # the event came before anyone listened
            if cell is not None and claimed is not None:
                self._parts.runs.claim(session, cell, claimed)

    def _tell_loss(self, session: Session) -> None:
        """Let the next answer say that variables are lost: cells ran in this session, and its kernel is gone."""
        ran = self._parts.journal.of_session(session.key, 1)
        if ran and ran[0].ended_at >= session.row.created_at:
            session.kernel.notice = "the kernel ended while no daemon ran; its variables are lost, contexts are kept"

    async def idled(self, alive: Collection[str]) -> None:
        """Handle kernels that are not ``alive``: suspend or end sessions that became idle in the meantime."""
        for path, file in left_kernels.left_kernels(self._left):
            if file is not None and file.left.kernel_id not in alive:
                try:
                    await self._idled(file)
                except (ClientFault, KernelError, StoreFault, OSError) as error:
                    log.warning("the remains of kernel %s cannot be used: %s", path.name, error)
            with suppress(OSError):
                path.unlink()

    async def _idled(self, file: LeftFile) -> None:
        left, label = file.left, file.left.label
        session = self._parts.sessions.of_key(label.get("key"))
        theirs = label.get("owner") == self._gateway.owner and "session" in label
        if session is None or not theirs or session.kernel.alive or label.get("policy") != session.pinned.digest:
            return
        self._note(session, left)
        if left.saved is not None:
            await self._parts.snapshots.reopening.keep_left(session, file, left.saved)
        if not left.idled:
            lost = f"variables are lost, contexts are kept: {left.unsaved}"
            session.kernel.notice = "" if left.saved is not None else lost
            return
        sessions.touch(self._store, session.key, left.last_used)
        await self._parts.sessions.idled(session, left.ended_at, left.unsaved, gone=left.saved is None)

    def _note(self, session: Session, left: LeftKernel) -> None:
        """Record what the kernel did while no daemon ran."""
        self._parts.queries.note(session, left.pending)
        for note in left.cells:
            self._parts.journal.told(session.key, left.kernel_id, note)
