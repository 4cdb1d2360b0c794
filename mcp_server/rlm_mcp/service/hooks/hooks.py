"""The effects of hook events: work in progress of a frame, refused writes, and context after a compaction.

An event comes from a hook that waits for the answer, or from the spool, where hooks leave events that no daemon took in
time. A repeated event changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlm_ipc import process_identity
from rlm_ipc.daemon_requests import HookNoted, NoteHook
from rlm_ipc.errors import ProtocolError
from rlm_ipc.messages import read
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.hook.answers import refusal, with_text
from rlm_mcp.hook.events import (
    Began,
    CallAsked,
    Compacted,
    Edited,
    Event,
    Prompted,
    ShellRan,
    Stopped,
    WriteAsked,
)
from rlm_mcp.hook.observations import Observed, observed
from rlm_mcp.hook.reading import read_event
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.holders import Holders
from rlm_mcp.service.hooks.agents import Agents
from rlm_mcp.service.hooks.folder import HookFolder
from rlm_mcp.service.hooks.primes import Primes
from rlm_mcp.service.sessions.names import GLOBAL_SESSION
from rlm_mcp.service.sessions.sessions import Clock
from rlm_memory import sessions
from rlm_memory.errors import MemoryLayerError, RowRequestError
from rlm_memory.frames import rows, tree
from rlm_memory.frames.rows import FrameRow
from rlm_memory.places import checkout_of, tree_of
from rlm_memory.store import Store
from rlm_memory.work import holders, leases, paths, prime, progress
from rlm_memory.work.board import REFUSED_WRITE

log = logging.getLogger(__name__)

_SPOOL_SECONDS = 2.0
_REFUSED_AGAIN_SECONDS = 60.0
_MOST_KNOWN = 10_000
_MOST_FILES = 200
_TOLD_BY_EVENT = ("claude-code", "codex")
"""Clients that start a new session after a compaction: only the hook of that prints the text."""


class Hooks:
    """Handles hook events; `agents` has the connected clients."""

    def __init__(self, store: Store, frames: Frames, live: Holders, clock: Clock, folder: Path) -> None:
        self._store, self._frames, self._holders, self._clock = store, frames, live, clock
        self.agents = Agents()
        self._folder = HookFolder(folder)
        self._primes = Primes(store, self._folder)
        self._known: dict[str, None] = {}
        self._due: dict[tuple[int, str], str] = {}
        self._begun: dict[str, None] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Read the spool, and keep the texts for hooks up to date, until `aclose`."""
        self.read_spool()
        self._tasks = [asyncio.create_task(self._primes.keep()), asyncio.create_task(self._watch_spool())]

    async def aclose(self) -> None:
        """Stop; the spool is kept for the next daemon."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._primes.write()

    # --- events -----------------------------------------------------------------------------------

    def note(self, request: NoteHook, *, late: bool = False) -> HookNoted:
        """Handle an event, perhaps ``late`` from the spool. Return the text that its hook prints."""
        if not _add(self._known, request.id):
            return HookNoted("")
        event = read_event(request.client, request.event, request.given)
        client = self.agents.find(event.origin, request.ancestors)
        try:
            if client is not None:
                self._holders.stir(client)
            return HookNoted(self._answer(request, event, client, late))
        except (MemoryLayerError, OSError) as error:
            log.warning("a hook's event was lost", extra={"event": request.event, "reason": str(error)})
            return HookNoted("")

    def _answer(self, request: NoteHook, event: Event, client: ClientInfo | None, late: bool) -> str:
        match event:
            case WriteAsked():
                self.agents.note_call(event.call, event.origin.agent)
                return self._before_write(request, event, client)
            case CallAsked():
                self.agents.note_call(event.call, event.origin.agent)
            case Edited() | ShellRan():
                self._merge(event, client, self._own(request, client))
            case Began():
                self._is_told(client)
                self._begins(event)
                return self._with_prime(request, event, client)
            case Stopped() if client is not None and event.origin.agent and not late:
                # Late, it could free what the agent has claimed since, and the end of its connection does it anyway.
                self._holders.stopped(client)
            case Compacted():
                if client is not None and request.client not in _TOLD_BY_EVENT:
                    self._due[client.pid, client.agent] = event.origin.folder or client.cwd
            case Prompted() if self._is_told(client) | self._begins(event):
                return self._with_prime(request, event, client)
            case _:
                pass
        return ""

    def _before_write(self, request: NoteHook, event: WriteAsked, client: ClientInfo | None) -> str:
        """Refuse a write to a path that someone else has claimed. Warn once of a shell patch that may be applied."""
        for path in event.paths:
            if (reason := self._taken(path, self._own(request, client), client)) is not None:
                return refusal(request.client, request.event, reason)
        if request.client == "codex" and event.tool != "apply_patch":
            self._merge(Edited(event.origin, event.paths), client, self._own(request, client))
        return ""

    def _taken(self, path: str, own: Sequence[str], client: ClientInfo | None) -> str | None:
        place = _real(path)
        root = checkout_of(place.parent) or self._shared_workspace()
        if root is None or not place.is_relative_to(root):
            return None
        inside = place.relative_to(root).as_posix()
        taken = paths.taken_by_other(self._store, self._tree(str(place.parent)), f"/{inside}", own)
        if taken is None:
            return None
        self._note_refusal(rows.frame_key(taken.frame), inside, client)
        return (
            f"{inside} was not written: {taken.frame}, on which {taken.holder} works, has claimed "
            f"{taken.path.removeprefix('/') or 'the whole repository'}. Write elsewhere, or take another task."
        )

    def _note_refusal(self, key: int, path: str, client: ClientInfo | None) -> None:
        """Record a conflict with the frame; repeated attempts are recorded once a minute."""
        author, now = "hook" if client is None else f"client {client.pid}", self._clock()
        last = rows.last_event(self._store, key, REFUSED_WRITE)
        again = last is not None and last.author == author and last.data.get("path") == path
        if last is None or not again or last.at < now - _REFUSED_AGAIN_SECONDS:
            rows.note(self._store, key, REFUSED_WRITE, author, now, path=path)

    def _own(self, request: NoteHook, client: ClientInfo | None) -> list[str]:
        """List the holders of an event's client. Agents are distinguished if both sides name them."""
        agent = client.agent if client is not None else ""
        above = {up.pid for up in request.ancestors}
        if len(above) == 1:  # a plugin reports only its own process
            above.update(process_identity.ancestors(*above))
        found = [holders.find(self._store, near) for near in self._holders.near(above)]
        named = [(holder.id, holder.proof.partition("#")[2]) for holder in found if holder is not None]
        return [holder for holder, its in named if not (agent and its and agent != its)]

    # --- work in progress -------------------------------------------------------------------------

    def _merge(self, event: Event, client: ClientInfo | None, own: Sequence[str]) -> None:
        seen = observed(event)
        files = [_real(path) for path in seen.pop("files_modified", [])]
        folders = {file: checkout_of(file.parent) for file in files}
        for root in dict.fromkeys(folders.values()):
            named = [_shown(file, root) for file in files if folders[file] == root]
            place = str(root) if root is not None else event.origin.folder
            self._frames.versions.note_changed(place, named)
            if place:
                self._merge_into(self._frame(place, client, own), seen | {"files_modified": named})
        if not files and event.origin.folder and (seen or isinstance(event, ShellRan)):
            key = self._frame(event.origin.folder, client, own, make=bool(seen))
            if key is not None:
                self._merge_into(key, seen, event if isinstance(event, ShellRan) else None)

    def _merge_into(self, key: int | None, seen: Observed, ran: ShellRan | None = None) -> None:
        """Merge into the work in progress of a frame, and shorten lists to which writers only add."""
        if key is None:
            return
        now = self._clock()
        with self._store.transaction():
            data = progress.get(self._store, key).data
            short: Observed = {}
            files, known = seen.get("files_modified", []), data.get("files_modified", [])
            if len(known) + len(files) > _MOST_FILES:
                short["files_modified"] = [*(path for path in known if path not in files), *files][-_MOST_FILES:]
            if ran is not None and "errors" not in seen and (left := _errors_left(data, ran)) is not None:
                short["errors"] = left
            try:
                if short:
                    progress.update(self._store, key, dict.fromkeys(short), now=now)
                if seen or short:
                    progress.update(self._store, key, seen | short, now=now)
            except RowRequestError as full:
                log.info("the list of work in progress is full", extra={"frame": key, "reason": str(full)})

    def _frame(self, folder: str, client: ClientInfo | None, own: Sequence[str], *, make: bool = True) -> int | None:
        """Return the frame for work in a folder: the client's, the only goal in progress, or the root."""
        named = self._tree(folder)
        current = self._frames.working_on(client, named) if client is not None else None
        if current is not None:
            return current
        found = self._held(named, own) or prime.worked_on(self._store, named, 2)
        if len(found) == 1:
            return found[0].key
        root = tree.root(self._store, named, author="hook", now=self._clock(), make=make)
        return None if root is None else root.key

    def _tree(self, folder: str) -> str:
        """Return the tree of the queue in a folder. Folders outside git share a session, and so the tree of that."""
        shared = sessions.find(self._store, GLOBAL_SESSION) if checkout_of(folder) is None else None
        return tree_of(folder, "") if shared is None else tree_of(shared.workspace, GLOBAL_SESSION)

    def _shared_workspace(self) -> Path | None:
        """Return the workspace of the session that folders outside git share."""
        shared = sessions.find(self._store, GLOBAL_SESSION)
        return Path(os.path.realpath(shared.workspace)) if shared is not None and shared.workspace else None

    def _held(self, named: str, own: Sequence[str]) -> list[FrameRow]:
        """List the claims of these holders in a tree."""
        return [row for holder in own for row in leases.held_by(self._store, holder) if row.tree == named]

    # --- where was I ------------------------------------------------------------------------------

    def prime(self, folder: str, client: ClientInfo | None = None) -> str:
        """Return the text for an agent that starts in a folder; empty if nothing is in progress there."""
        return self.prime_of(self._tree(folder), client)

    def prime_of(self, named: str, client: ClientInfo | None = None, own: Sequence[str] = ()) -> str:
        """Return the text of a tree, starting with the client's frame or the claims of these holders."""
        current = self._frames.working_on(client, named) if client is not None else None
        if current is None and len(held := self._held(named, own)) == 1:
            current = held[0].key
        return prime.assemble(self._store, named, own=current)

    def due(self, client: ClientInfo) -> str:
        """Return the text once, for the next tool answer, after a compaction of a client that has no event for it."""
        folder = self._due.pop((client.pid, client.agent), None)
        return "" if folder is None else self.prime(folder, client)

    def _is_told(self, client: ClientInfo | None) -> bool:
        """Tell whether a client still has to get the text, and mark it as delivered."""
        return client is not None and self._due.pop((client.pid, client.agent), None) is not None

    def _begins(self, event: Event) -> bool:
        """Tell whether a client's session or agent is new: some start without an event."""
        return _add(self._begun, event.origin.agent or event.origin.session)

    def _with_prime(self, request: NoteHook, event: Event, client: ClientInfo | None) -> str:
        folder = event.origin.folder or (client.cwd if client is not None else "")
        text = self.prime_of(self._tree(folder), client, self._own(request, client)) if folder else ""
        return with_text(request.client, request.event, text) if text and request.client != "opencode" else ""

    # --- the spool --------------------------------------------------------------------------------

    def read_spool(self) -> None:
        """Handle the events in the spool."""
        try:
            lines = self._folder.take()
        except OSError as error:
            log.warning("the spooled events of hooks cannot be read", extra={"reason": str(error)})
            return
        for request in sorted(filter(None, map(_parsed, lines)), key=lambda one: one.at):
            self.note(request, late=True)

    async def _watch_spool(self) -> None:
        while True:
            await asyncio.sleep(_SPOOL_SECONDS)
            try:
                self.read_spool()
            except Exception:
                log.exception("spooled events of hooks were lost")


def _add(known: dict[str, None], one: str) -> bool:
    """Add an entry, and forget the oldest. Return whether it was new."""
    if one in known:
        return False
    known[one] = None
    while len(known) > _MOST_KNOWN:
        del known[next(iter(known))]
    return True


def _parsed(line: str) -> NoteHook | None:
    """Return the event in a line of the spool, or None if the line is incomplete or of another version."""
    try:
        return read(NoteHook, json.loads(line))
    except (ValueError, RecursionError, ProtocolError):
        return None


def _real(path: str) -> Path:
    """Return a file's path with its folder resolved, but not its own name, because the file is about to be replaced."""
    folder, name = os.path.split(path)
    return Path(os.path.realpath(folder), name)


def _shown(file: Path, root: Path | None) -> str:
    return file.relative_to(root).as_posix() if root is not None else str(file)


def _errors_left(data: dict[str, Any], ran: ShellRan) -> list[Any] | None:
    """Return the remaining errors after a command that failed before has succeeded; None if it had not failed."""
    errors, command = data.get("errors"), " ".join(ran.command.split())
    if ran.status or not isinstance(errors, list):
        return None
    left = [error for error in errors if not (isinstance(error, dict) and _is_of(error.get("command"), command))]
    return left if len(left) < len(errors) else None


def _is_of(failed: object, command: str) -> bool:
    return isinstance(failed, str) and bool(failed) and command.startswith(failed)
