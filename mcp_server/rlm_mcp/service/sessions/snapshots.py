"""Snapshots: a session as a file that outlives its kernel, its machine and its rows.

A kernel hands out its variables as bytes that nobody here looks into. They come back through the kernel of a session
with the same or another policy, which decides what of them it takes (`rlm_kernel.worker.snapshot`).
"""

from __future__ import annotations

import asyncio
import errno
import platform
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rlm_contexts.errors import ContextError
from rlm_contexts.store.pins import holding
from rlm_contexts.store.store import ContextStore
from rlm_ipc.daemon_rows import NotKept
from rlm_ipc.errors import KernelError
from rlm_ipc.left_kernels import LeftFile
from rlm_ipc.private_folders import put_file
from rlm_ipc.session_requests import RestoreSession, SessionRestored, SessionSaved
from rlm_ipc.version import VERSION
from rlm_ipc.worker_requests import HandedOut, PutBack
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.formats.snapshot import IMAGE, TEMPORARY, Archive, Manifest, Missing, SavedContext, Writer, image_in
from rlm_mcp.service.errors import ToolFault, fault_from
from rlm_mcp.service.sessions.budgets import Budgets
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.lasting import SUFFIX, Lasting
from rlm_mcp.service.sessions.names import check_context_name, check_session_id, workspace_for
from rlm_mcp.service.sessions.policies import Policies
from rlm_mcp.service.sessions.reopening import Reopening
from rlm_mcp.service.sessions.saved_rows import (
    entry_of,
    query_row_of,
    save_contexts,
    saved_cell,
    saved_query,
    saved_turn,
    turn_row_of,
)
from rlm_mcp.service.sessions.saved_variables import SavedVariables, as_left, missing, put_back, save_variables
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.tool_answers import moment
from rlm_memory import contexts, journal, queries, sessions
from rlm_memory import model_turns as turns
from rlm_memory.contexts import ContextOrigin, ContextRow, StoredContent
from rlm_memory.errors import QuotaExceeded
from rlm_memory.locks import is_section
from rlm_memory.queries import QueryRow, QueryState
from rlm_memory.store import Store
from rlm_sandbox.errors import PolicyError

_LASTING = "lasting"
"""The folder of what belongs to its session."""
_KEY_BYTES = 32


class Snapshots:
    """Saves sessions to files and opens them again; ``ask`` has a provider answer queries."""

    def __init__(
        self,
        store: Store,
        files: ContextStore,
        live: Sessions,
        policies: Policies,
        cells: Journal,
        clock: Clock,
        folder: Path,
        budgets: Budgets,
        ask: Callable[[Session, Sequence[QueryRow]], None],
    ) -> None:
        self._store, self._files, self._sessions, self._ask = store, files, live, ask
        self._policies = policies
        self._budgets = budgets
        self._journal, self._clock, self._folder = cells, clock, folder
        self.lasting = Lasting(folder / _LASTING)
        """What is kept of sessions that come back by themselves."""
        self.reopening = Reopening(store, self.lasting, self, cells, clock)

    def kept(self, session: str) -> Path:
        """Where the snapshot of a session is that a user has saved without naming a file: it is theirs, and stays."""
        return self._folder / f"{session}{SUFFIX}"

    def tidy(self) -> None:
        """Remove what a daemon that was killed has left: half a file, or what it kept of a session that has ended."""
        for path in self._folder.glob(f"{TEMPORARY}*"):
            with suppress(OSError):
                path.unlink()
        with suppress(OSError):  # ahead of need: it takes room on a disk that may be full when somebody saves elsewhere
            key_in(self._folder)
        with suppress(OSError):
            self.lasting.keep_only({row.key for row in sessions.all_sessions(self._store)})

    # --- saving -----------------------------------------------------------------------------------

    async def save(
        self, session: Session, path: Path | None, *, embed: bool = True, trial: bool = True
    ) -> SessionSaved:
        """Write the session to ``path`` (default: our own folder) and say what is in the file and what is not.

        With ``embed`` it holds the texts of the contexts, else their digests. A ``trial`` takes a second kernel.

        Raises:
            ToolFault: the file cannot be written, or would replace one that holds more.
            KernelError: the kernel ended meanwhile.
        """
        target = path or self.kept(session.id)
        if not session.kernel.alive:
            await self._wake_kernel(session, path)
        try:
            if target.exists() and not target.is_file():
                raise OSError(errno.EEXIST, "it is not a regular file")
            if target.is_relative_to(self._folder):
                self._folder.mkdir(mode=0o700, exist_ok=True)
                target.parent.mkdir(mode=0o700, exist_ok=True)
            writer = Writer(target.parent)
        except OSError as error:
            raise _unwritable(target, error) from error
        try:
            async with session.kernel.turn.between_cells():
                saved = await save_variables(session, writer, trial=trial)
                rows = self._texts_of(session)
                # In the turn: a text that came since has the name to itself.
                hidden = session.kernel.bound.current(saved.shadowed)
            texts, lost = await asyncio.to_thread(save_contexts, self._files, rows, writer, embed=embed)
            manifest = self._manifest(session, saved, texts, lost, writer, self._clock())
            manifest.shadowed.update({row.name: row.revision for row in rows if row.name in hidden})
            size = await asyncio.to_thread(writer.finish, manifest.sealed(key_in(self._folder)), target)
            if path is None and session.policy.reopen:
                async with self.lasting.lock(session.key):
                    self.lasting.link(session.key, target)
        except OSError as error:
            raise _unwritable(target, error) from error
        finally:
            writer.abandon()
        return SessionSaved(
            saved=session.id,
            file=str(target),
            bytes=size,
            variables=tuple(item.name for item in saved.variables if not item.code),
            code=tuple(item.name for item in saved.variables if item.code),
            contexts=tuple(item.name for item in texts),
            not_saved=tuple(NotKept(item.name, item.reason) for item in manifest.missing),
        )

    async def _wake_kernel(self, session: Session, path: Path | None) -> None:
        """Bring back the kernel of a session that has been set aside; refuse a save that would lose variables.

        Raises:
            ToolFault: the variables are lost, or the file to be replaced may hold some.
            KernelError: a kernel cannot be started or reached.
        """
        if self.lasting.exists(session.key):
            await session.kernel.open()
        elif self._journal.of_session(session.key, 1):
            raise ToolFault(
                "no_kernel",
                f"session {session.id} has no kernel at the moment, so none of its variables can be saved",
                "run a cell in it first; the answer says what was lost",
            )
        elif path is None and (kept := self.kept(session.id)).exists():
            raise ToolFault(
                "no_kernel",
                f"session {session.id} has run no code, and {kept} may hold variables of an earlier one",
                "use another file to save only contexts and queries",
            )

    async def write(self, session: Session, *, trial: bool) -> None:
        """Write a session to the file that it comes back to."""
        await self.save(session, self.lasting.file(session.key), embed=False, trial=trial)

    async def write_left(self, session: Session, file: LeftFile, told: HandedOut) -> None:
        """Write what a supervisor has saved of a session to the file that it comes back to."""
        target, saved = self.lasting.file(session.key), as_left(told)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        writer = Writer(target.parent)
        try:
            await asyncio.to_thread(writer.add, IMAGE, file.pieces(), stored=True)
            texts, lost = save_contexts(self._files, self._texts_of(session), writer, embed=False)
            manifest = self._manifest(session, saved, texts, lost, writer, file.left.ended_at)
            had = file.left.contexts
            manifest.shadowed.update({name: had[name] for name in saved.shadowed & had.keys()})
            await asyncio.to_thread(writer.finish, manifest.sealed(key_in(self._folder)), target)
        finally:
            writer.abandon()

    def _manifest(
        self,
        session: Session,
        saved: SavedVariables,
        texts: list[SavedContext],
        lost: Sequence[Missing],
        writer: Writer,
        created_at: float,
    ) -> Manifest:
        """Return the manifest of a file that has these variables and texts."""
        return Manifest(
            program=VERSION,
            python=platform.python_version(),
            created_at=created_at,
            session=session.id,
            policy=session.row.policy,
            policy_text=session.pinned.text,
            workspace=session.row.workspace,
            variables=saved.variables,
            contexts=texts,
            queries=[saved_query(row) for row in queries.of_session(self._store, session.key)],
            journal=[saved_cell(entry) for entry in self._journal.of_session(session.key)],
            turns=[saved_turn(row) for row in turns.of_session(self._store, session.key)],
            missing=[*saved.missing, *lost],
            files=writer.files,
        )

    def _texts_of(self, session: Session) -> list[ContextRow]:
        return [row for row in contexts.of_session(self._store, session.key) if not is_section(row)]

    # --- restoring --------------------------------------------------------------------------------

    async def restore(self, request: RestoreSession, handshake: ClientInfo) -> SessionRestored:
        """Open a session from a snapshot and say what came back and what did not.

        Raises:
            SnapshotRefused: the file is no sound snapshot; nothing was changed.
            ToolFault: there is none, or the session has something in it already.
        """
        path = Path(request.file) if request.file else self.kept(check_session_id(request.source))
        if not path.is_file():
            raise ToolFault(
                "no_snapshot", f"there is no snapshot {path}", "save the session first, with rlm-kernel save"
            )
        with await asyncio.to_thread(Archive.open, path) as archive:
            manifest = archive.manifest
            if manifest.variables and not request.foreign and not manifest.is_sealed(key_in(self._folder)):
                raise ToolFault(
                    "foreign_snapshot",
                    f"{path} was not written by this user's daemon, or was modified since",
                    "if you trust its author with what the policy permits, restore it with --foreign",
                )
            session = await self._open(manifest, request, handshake)
            lost = [*manifest.missing, *await self._rows(session, archive)]
            done = _none_back("another call started the kernel before they could be restored")

            async def fill(client: SupervisorClient, kernel: str) -> bool:
                nonlocal done
                done = await put_back(session, client, kernel, image_in(archive), manifest.shadowed)
                return True

            session.last_used = self._clock()
            try:
                await session.kernel.ready(fill)
            except (KernelError, OSError) as error:
                done = _none_back(str(error))
        self._ask_again(session)
        notice = f"it was saved under the policy {manifest.policy!r}; --policy names one to restore under"
        return SessionRestored(
            restored=session.id,
            policy=session.row.policy,
            saved_at=moment(manifest.created_at),
            variables=done.restored,
            contexts=tuple(contexts.names(self._store, session.key)),
            pending_llm_queries=tuple(queries.pending_ids(self._store, session.key)),
            not_restored=(*(NotKept(item.name, item.reason) for item in lost), *done.failed),
            notice=notice if session.row.policy != manifest.policy else None,
        )

    def reopen(self, session: Session) -> None:
        """Have a provider asked again what it had not answered when the session began to rest."""
        session.woken = False
        self._ask_again(session)

    async def _open(self, manifest: Manifest, request: RestoreSession, handshake: ClientInfo) -> Session:
        name = check_session_id(request.session or manifest.session)
        known = self._sessions.get(name)
        row = sessions.find(self._store, name)
        alive = known is not None and known.kernel.alive
        if row is not None and (alive or contexts.names(self._store, row.key)):
            raise ToolFault(
                "session_in_use",
                f"session {name} has contexts or a running kernel",
                "end it first, or restore under another id with --session",
                session=name,
            )
        # A file may come from anywhere: the folder that code may read is never one that it names.
        ours = not request.file
        whose = ClientInfo(cwd=manifest.workspace if ours else handshake.cwd, pid=handshake.pid)
        try:
            policy = await self._policies.of_snapshot(manifest, request.policy or "", workspace_for(whose), ours=ours)
        except PolicyError as error:
            raise ToolFault("policy_error", fault_from(error).message, "name another policy with --policy") from error
        return await self._sessions.open(whose, name, policy)

    async def _rows(self, session: Session, archive: Archive) -> list[Missing]:
        """Write contexts, queries and journal down again; returns the contexts that could not be."""
        manifest, lost = archive.manifest, []
        for context in manifest.contexts:
            try:
                with holding():
                    await self._context(session, archive, context)
            except (ContextError, QuotaExceeded, ToolFault) as error:
                lost.append(missing(context.name, str(error)))
        self._queries(session, manifest)
        if not self._journal.of_session(session.key, 1):
            journal.append(self._store, [entry_of(session.key, cell) for cell in manifest.journal])
        if not turns.of_session(self._store, session.key):
            for turn in manifest.turns:
                turns.append(self._store, turn_row_of(session.key, turn))
        session.kernel.changed()
        return lost

    def _queries(self, session: Session, manifest: Manifest) -> None:
        """Write the queries down again. What a provider had not answered it is to answer at the cost of this life.

        Where the policy does not permit that, or not as often, an agent is.
        """
        rows = [query_row_of(session.key, query) for query in manifest.queries]
        left = self._budgets.calls_left(session) if session.policy.llm.permits("provider") else 0
        again = 0
        for number, row in enumerate(rows):
            if row.state is QueryState.PENDING and row.mode == "provider":
                if again < left:
                    again += 1
                else:
                    rows[number] = replace(row, mode="deferred")
        with self._store.transaction():
            queries.restore(self._store, rows)
            self._budgets.ask(session, again)

    def _ask_again(self, session: Session) -> None:
        self._ask(session, [row for row in queries.pending(self._store, session.key) if row.mode == "provider"])

    async def _context(self, session: Session, archive: Archive, context: SavedContext) -> None:
        name, quota = check_context_name(context.name), session.policy.limits.content_bytes
        if context.file is None:
            stored = await asyncio.to_thread(self._files.get, context.digest)
        else:
            pieces = archive.pieces(context.file)
            stored = await asyncio.to_thread(lambda: self._files.put_chunks(pieces, limit=quota))
        content = StoredContent(stored.digest, stored.loaded, stored.line_count, context.type, context.metadata)
        origin = ContextOrigin.LOADED  # also what had come by a handle: nobody else pays for it here
        if context.origin == ContextOrigin.OUTPUT.value:
            origin = ContextOrigin.OUTPUT
            self._refuse_outputs_beyond(session, stored.size, quota)
        contexts.put(self._store, session.key, name, content, now=self._clock(), origin=origin, quota=quota)

    def _refuse_outputs_beyond(self, session: Session, size: int, most: int) -> None:
        """Refuse an output for which those that are restored leave no room: they have an allowance of their own."""
        rows = contexts.of_session(self._store, session.key)
        kept = sum(row.size for row in rows if row.origin is ContextOrigin.OUTPUT)
        if kept + size > most:
            raise QuotaExceeded(session.id, used=kept, asked=size, limit=most)


def key_in(folder: Path) -> bytes:
    """Return the key with which this user's daemons seal snapshots. It is in ``folder``, made when first needed."""
    path = folder / "key"
    with suppress(FileNotFoundError):
        if len(key := path.read_bytes()) == _KEY_BYTES:
            return key
    folder.mkdir(mode=0o700, exist_ok=True)
    put_file(path, secrets.token_bytes(_KEY_BYTES))
    return path.read_bytes()


def _none_back(reason: str) -> PutBack:
    return PutBack((), (NotKept("(variables)", reason),))


def _unwritable(path: Path, error: OSError) -> ToolFault:
    return ToolFault(
        "cannot_write",
        f"the snapshot {path} cannot be written: {error.strerror or error}",
        "free disk space, or name a file in a writable folder; an earlier snapshot there is unchanged",
    )
