"""Sessions that come back by themselves: their variables are saved before a kernel goes, and given to the next one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Protocol

from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.errors import KernelBusy, KernelError, ProcessError, UnknownKernel, machine_full
from rlm_ipc.left_kernels import LeftFile
from rlm_ipc.worker_requests import HandedOut
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.errors import ClientFault
from rlm_mcp.formats.snapshot import SavedImage
from rlm_mcp.service.background import in_thread
from rlm_mcp.service.sessions.expiry import as_saved
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.lasting import Lasting
from rlm_mcp.service.sessions.saved_variables import as_left, hand_out_new, put_back
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_mcp.service.tool_answers import moment
from rlm_memory import contexts, sessions
from rlm_memory.store import Store

log = logging.getLogger(__name__)

_SECONDS = 30.0
"""How long a save may take that nobody has asked for."""


class FileWriter(Protocol):
    """Writes whole snapshots for sessions that come back; see `Snapshots`."""

    async def write(self, session: Session, *, trial: bool) -> None:
        """Write the variables of a session and the digests of its texts; raises ClientFault, KernelError, OSError."""
        ...

    async def write_left(self, session: Session, file: LeftFile, told: HandedOut) -> None:
        """Write what a supervisor has saved of a session; raises KernelError, OSError."""
        ...


class Reopening:
    """Saves the variables of sessions whose policy has them come back, and brings them back."""

    def __init__(self, store: Store, lasting: Lasting, files: FileWriter, cells: Journal, clock: Clock) -> None:
        self._store, self._lasting, self._files = store, lasting, files
        self._journal, self._clock = cells, clock

    async def save(self, session: Session, *, trial: bool = True) -> str:
        """Save a session before its kernel may go, with what is lost of it if there is a ``trial``.

        Returns why it could not be saved; empty if it was, or if there is nothing to save: it runs a cell, or its
        policy does not have it come back.
        """
        if not session.policy.reopen or session.kernel.busy or await session.kernel.seen() is None:
            return ""  # its kernel has gone, and none is to be started for this
        write = partial(self._write_file, session, trial=trial)
        if session.policy.checkpoint == "durable" and not trial:
            write = partial(self._write_pieces, session)
        try:
            return await self._saved(session, write)
        except KernelBusy as error:
            return str(error)

    async def save_pieces(self, session: Session) -> str:
        """Save what has changed of a session's variables since they were saved last, when its cell has ended.

        Returns why it could not be saved; empty if it was.

        Raises:
            KernelBusy: The cell waits for an agent.
        """
        return await self._saved(session, partial(self._write_pieces, session))

    async def _saved(self, session: Session, write: Callable[[], Coroutine[object, object, None]]) -> str:
        try:
            async with self._lasting.lock(session.key):
                await write()
            row = sessions.find(self._store, session.id)
            if row is None or row.key != session.key:  # it has ended meanwhile
                self._lasting.forget(session.key)
        except KernelBusy:
            raise
        except (ClientFault, KernelError, OSError, TimeoutError) as error:
            log.warning("session %s could not be saved: %s", session.id, error)
            if isinstance(error, OSError) and (full := machine_full(error)) and full.resource == "disk":
                return f"the disk of {self._lasting.folder} is full"
            return str(error) or f"it took longer than {_SECONDS:g} s"
        return ""

    async def _write_file(self, session: Session, *, trial: bool) -> None:
        async with asyncio.timeout(_SECONDS):
            await self._files.write(session, trial=trial)
        self._lasting.keep_file(session.key)

    async def _write_pieces(self, session: Session) -> None:
        kernel = session.kernel
        async with kernel.turn.between_cells(busy=False), asyncio.timeout(_SECONDS):
            if not kernel.alive:
                return
            of = kernel.kernel_id
            told, writer = await hand_out_new(session, self._lasting.pieces(session.key))
            now = self._clock()
            saved = as_left(told)
            hidden = kernel.bound.current(saved.shadowed)
            rows = contexts.of_session(self._store, session.key)
        async with self._lasting.replacing(session.key):
            # Another process may have taken the place of one that died, and what was saved of that one is for this one.
            if kernel.kernel_id in (of, None) and not kernel.deliveries.fresh and not kernel.deliveries.outdated:
                shadowed = {row.name: row.revision for row in rows if row.name in hidden}
                await in_thread(writer.finish, now, shadowed, saved.missing)
                await in_thread(self._lasting.keep_pieces, session.key)

    async def keep_left(self, session: Session, file: LeftFile, told: HandedOut) -> None:
        """Keep what a supervisor saved of a session while no daemon was there; raises KernelError, OSError."""
        async with self._lasting.lock(session.key):
            await self._files.write_left(session, file, told)
            self._lasting.keep_file(session.key)

    async def not_saved(self, session: Session) -> list[float]:
        """Return when each cell ended that a durable session has not on disk; raises ClientFault, OSError."""
        if session.policy.checkpoint != "durable":
            return []
        async with self._lasting.open(session.key) as saved:
            return self._ended_since(session, saved.created_at if saved is not None else 0.0)

    async def began_anew(self, session: Session, when: float) -> None:
        """Forget what was saved of a session before its user had it begin anew; raises ClientFault, OSError."""
        async with self._lasting.lock(session.key):
            async with self._lasting.open(session.key) as saved:
                outdated = saved is not None and saved.created_at < when
            if outdated:
                self._lasting.forget(session.key)

    async def revive(self, session: Session, client: SupervisorClient, kernel: str) -> bool:
        """Give a fresh kernel the variables that were saved of its session, and have the next answer tell it.

        Returns whether there were any that could be read.
        """
        try:
            async with self._lasting.replacing(session.key), self._lasting.open(session.key) as saved:
                if saved is None:
                    return False
                done = await put_back(session, client, kernel, saved, self._still_there(session, saved))
                gone = [*(NotKept(item.name, item.reason) for item in saved.missing), *done.failed]
                later = len(self._ended_since(session, saved.created_at))
                session.kernel.notice = as_saved(moment(saved.created_at), gone, later)
        except (ClientFault, KernelError, OSError) as error:
            if isinstance(error, ProcessError | UnknownKernel) or machine_full(error) is not None:
                raise  # this kernel, or for now: the next call tries again
            session.kernel.notice = f"the saved variables could not be restored: {error}"
            return False
        return True

    def _still_there(self, session: Session, saved: SavedImage) -> set[str]:
        """The contexts that variables shadowed, without those that were loaded again since."""
        rows = contexts.of_session(self._store, session.key)
        return {row.name for row in rows if saved.shadowed.get(row.name) == row.revision}

    def _ended_since(self, session: Session, when: float) -> list[float]:
        return [entry.ended_at for entry in self._journal.of_session(session.key) if entry.ended_at > when]
