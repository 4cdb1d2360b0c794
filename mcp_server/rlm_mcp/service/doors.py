"""Doors: how a session comes to be listed in Jupyter front ends, and who may open it there.

A session is listed for as long as it lives: `Doors.publish` gives it a kernelspec and a key, `Doors.withdraw` takes
both away. A front end that opens it starts a relay, which shows the key here (`Doors.enter`) and is told which kernel
to ask the host for; the host then holds it to the door's mode.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlm_kernel import doorfiles
from rlm_kernel.errors import KernelError
from rlm_kernel.hostclient import KernelInfo
from rlm_mcp.service.answers import moment
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.gateway import KernelGateway
from rlm_mcp.service.journal import Journal
from rlm_mcp.service.sessions import Clock, Session, Sessions
from rlm_memory import doors, sessions
from rlm_memory.doors import Door, DoorEvent, DoorMode
from rlm_memory.errors import SessionEnded
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

__all__ = ["Doors"]

log = logging.getLogger(__name__)


class Doors:
    """The doors of all sessions of the daemon."""

    def __init__(self, store: Store, live: Sessions, gateway: KernelGateway, journal: Journal, clock: Clock) -> None:
        self._store = store
        self._sessions = live
        self._gateway = gateway
        self._journal = journal
        self._clock = clock
        self._listed: set[int] = set()
        self._copies: dict[str, Door] = {}
        """The copies for developers' own code, by their kernels."""

    def publish(self, session: Session) -> None:
        """List a session that has no door yet in the front ends of its user, unless its policy has it otherwise."""
        mode = session.policy.doors.mode
        if session.key in self._listed or mode == "none":
            return
        self._listed.add(session.key)
        if doors.of_sessions(self._store, session.key):
            return
        try:
            self._grant(session, DoorMode(mode))
        except OSError as error:
            log.warning("session %s is not listed in Jupyter front ends: %s", session.id, error)

    def add(self, session_id: str, mode: str) -> dict[str, Any]:
        """Return the door of that mode, made if there is none; raises ToolFault if the policy does not permit it."""
        session = self._open(session_id)
        self._refuse_more(session, mode)
        known = [door for door in doors.of_sessions(self._store, session.key) if door.ended_at is None]
        found = next((door for door in known if door.mode == mode), None)
        try:
            return self._row(found or self._grant(session, DoorMode(mode)), session)
        except OSError as error:
            folder = doorfiles.kernels_folder()
            raise ToolFault("cannot_write", f"{folder}: {error.strerror}", "make the folder writable") from error

    def withdraw(self, session: Session) -> None:
        """Have a session that has ended, or rests, listed no more."""
        self._listed.discard(session.key)
        for known in doors.of_sessions(self._store, session.key):
            if not known.revoked:
                doors.drop(self._store, known.id)
        folders = {doorfiles.spec_folder(session.id, mode) for mode in DoorMode}
        for door, folder in doorfiles.published():
            if folder in folders:
                self._remove(door, folder)

    async def end_copies(self) -> None:
        """End the copies for developers' own code whose session is open no more."""
        for copy, door in list(self._copies.items()):
            if self._sessions.of_key(door.session) is None:
                del self._copies[copy]
                self._gateway.unlisten(copy)
                with suppress(KernelError, OSError):
                    await (await self._gateway.client(start=False)).shutdown(copy)

    def tidy(self) -> None:
        """Remove what doors of sessions have left that ended while no daemon was there, and list the others again."""
        doorfiles.sweep()
        published = list(doorfiles.published())
        listed, kept = {door for door, _ in published}, set()
        for door in doors.of_sessions(self._store):
            if (session := self._sessions.of_key(door.session)) is None or door.revoked:
                continue
            if door.id in listed:
                kept.add(door.id)
            else:  # the key is not known here: it gets another door
                doors.drop(self._store, door.id)
                self._listed.discard(session.key)
        for door_id, folder in published:
            if door_id not in kept:
                self._remove(door_id, folder)

    def rest(self) -> None:
        """The daemon leaves: list only sessions that have a kernel, which goes on, until the next one comes."""
        for door in doors.of_sessions(self._store):
            session = self._sessions.of_key(door.session)
            if session is not None and not (self._gateway.connected and session.kernel.alive):
                self._remove(door.id, doorfiles.spec_folder(session.id, door.mode))

    async def enter(self, door_id: str, key: str) -> dict[str, Any]:
        """Let a front end in that shows the key: tell the kernel, started if need be, and the door's mode.

        Raises ToolFault when the door is none, and KernelError when the kernel cannot be started.
        """
        door = doors.find(self._store, door_id)
        if door is None or door.ended_at is not None:
            raise ToolFault("door_not_found", "this door was revoked, or its session has ended", _LIST)
        digest = _digest(key)
        if not hmac.compare_digest(digest, door.key_digest):
            self._note(door, "refused")
            raise ToolFault("door_refused", "the door has another key", _LIST)
        session = self._sessions.of_key(door.session)
        if session is None:
            raise ToolFault("door_not_found", "the session of this door rests, or has ended", _LIST)
        self._refuse_more(session, door.mode)
        with self._sessions.use(session):
            if door.mode is DoorMode.TRUSTED:
                opened = await self._copy(session, door)
            else:
                watches = door.mode is DoorMode.WATCH
                opened = {"kernel_id": await session.kernel.open(), "door": door.id, "watches": watches}
        self._note(door, "opened")
        return opened

    async def _copy(self, session: Session, door: Door) -> dict[str, Any]:
        """Make the copy of a session in which a developer's own code runs; it ends with the front end."""
        copy = await session.kernel.copy_for(door.id)
        self._follow(session, door, copy)
        return {"kernel_id": copy, "door": _trusted(door), "owned": True}

    def _follow(self, session: Session, door: Door, copy: str) -> None:
        """Write down what happens in a copy."""

        def tell(event: dict[str, Any]) -> None:
            kind = event.get("event")
            if kind == "cell":
                self._journal.told(session.key, copy, event)
            elif kind == "door" and not event.get("open"):
                self._note(door, "closed")
            elif kind == "ended":
                self._gateway.unlisten(copy)
                self._copies.pop(copy, None)

        self._gateway.listen(copy, tell)
        self._copies[copy] = door

    async def adopt(self, copies: list[KernelInfo]) -> list[KernelInfo]:
        """Go on with the copies of an earlier daemon, and what ran in them since; returns those without a door."""
        orphans = []
        for info in copies:
            door = doors.find(self._store, str(info.label.get("door")))
            session = self._sessions.of_key(info.label.get("copy_of"))
            if (
                door is None
                or door.ended_at is not None
                or session is None
                or info.label.get("policy") != session.pinned.digest
            ):
                orphans.append(info)
                continue
            self._follow(session, door, info.kernel_id)
            try:
                client = await self._gateway.client(start=False)
                for note in await client.cells(info.kernel_id, self._journal.last_serial(info.kernel_id)):
                    self._journal.told(session.key, info.kernel_id, note)
            except (KernelError, OSError):  # it has just ended
                self._copies.pop(info.kernel_id, None)
        return orphans

    async def revoke(self, door_id: str) -> dict[str, Any]:
        """End a door for good: front ends that have it open lose it at once; raises ToolFault if it is none."""
        door = doors.find(self._store, door_id)
        if door is None or not doors.revoke(self._store, door_id, self._clock()):
            raise ToolFault("door_not_found", f"there is no door {door_id[:80]}", _LIST)
        name = sessions.name_of(self._store, door.session)
        self._remove(door.id, doorfiles.spec_folder(name, door.mode))
        self._note(door, "revoked")
        return {"revoked": door.id, "session": name, "closed": await self._close(door)}

    async def close(self, session: Session) -> None:
        """End the doors of a session that goes on under another policy; `publish` makes the one that it permits."""
        known = doors.of_sessions(self._store, session.key)
        self.withdraw(session)
        for door in known:
            await self._close(door)

    async def _close(self, door: Door) -> int:
        """Have front ends lose a door that they have open; returns how many did."""
        closed, session = 0, self._sessions.of_key(door.session)
        places = {(copy, _trusted(door)) for copy, of in self._copies.items() if of.id == door.id}
        if session is not None and session.kernel.kernel_id is not None:
            places.add((session.kernel.kernel_id, door.id))
        for kernel_id, place in places:
            try:
                closed += await (await self._gateway.client(start=False)).close_door(kernel_id, place)
            except (KernelError, OSError) as error:
                log.warning("door %s is revoked, but the host does not say that it is closed: %s", door.id, error)
        return closed

    def rows(self) -> list[dict[str, Any]]:
        """List the doors of all open sessions."""
        found = [(door, self._sessions.of_key(door.session)) for door in doors.of_sessions(self._store)]
        return [self._row(door, session) for door, session in found if session is not None]

    def log(self, session: int) -> list[dict[str, Any]]:
        """List what happened at a session's doors, the oldest first."""
        events = doors.events(self._store, session)
        return [{"door": event.door, "event": event.event, "at": moment(event.at)} for event in events]

    def noted(self, session: Session, event: dict[str, Any]) -> None:
        """Note what the host tells of a door: of one that a front end has left."""
        if not event.get("open"):
            self._write(DoorEvent(str(event.get("door")), session.key, "closed", self._clock()))

    def spec_of(self, session: SessionRow) -> str | None:
        """Return the name of the kernelspec by which a live session is listed."""
        live = [door for door in doors.of_sessions(self._store, session.key) if door.ended_at is None]
        return doorfiles.spec_name(session.id, live[0].mode) if live else None

    def _grant(self, session: Session, mode: DoorMode) -> Door:
        key = secrets.token_urlsafe(32)
        door = Door(secrets.token_hex(6), session.key, mode, _digest(key), self._clock())
        doors.grant(self._store, door)
        doorfiles.publish(door.id, session.id, mode.value, key)
        return door

    def _open(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise ToolFault("session_not_found", f"no session {session_id[:80]} is open", "list: rlm-kernel sessions")
        return session

    @staticmethod
    def _refuse_more(session: Session, mode: str) -> None:
        permitted = session.policy.doors
        why = ""
        if permitted.mode == "none" or (permitted.mode == "watch" and mode != "watch"):
            why = f"the policy {session.row.policy!r} has doors.mode: {permitted.mode}"
        elif mode == "trusted" and not permitted.trusted:
            why = f"the policy {session.row.policy!r} has doors.trusted: false"
        if why:
            raise ToolFault("door_not_permitted", why, "choose another policy when the session starts")

    def _row(self, door: Door, session: Session) -> dict[str, Any]:
        opened = Counter(session.kernel.doors)
        return {
            "door": door.id,
            "session": session.id,
            "mode": door.mode.value,
            "open": opened[door.id] + sum(of.id == door.id for of in self._copies.values()),
            "revoked": door.revoked,
            "kernelspec": doorfiles.spec_name(session.id, door.mode),
            "created": moment(door.created_at),
        }

    def _note(self, door: Door, event: str) -> None:
        log.info("door %s", event, extra={"door": door.id})
        self._write(DoorEvent(door.id, door.session, event, self._clock()))

    def _write(self, event: DoorEvent) -> None:
        with suppress(SessionEnded):  # of its door nothing is kept any more
            doors.note(self._store, event)

    @staticmethod
    def _remove(door: str, folder: Path) -> None:
        try:
            doorfiles.withdraw(door, folder)
        except OSError as error:
            log.warning("the kernelspec of door %s cannot be removed: %s", door, error)


_LIST = "list the doors: rlm-kernel doors list"


def _trusted(door: Door) -> str:
    """How the host knows the door of a copy."""
    return f"trusted-{door.id}"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
