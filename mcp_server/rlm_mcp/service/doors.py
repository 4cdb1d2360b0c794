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
from pathlib import Path
from typing import Any

from rlm_kernel import doorfiles
from rlm_kernel.errors import KernelError
from rlm_kernel.hostclient import KernelInfo
from rlm_mcp.service.answers import moment
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.journal import Journal
from rlm_mcp.service.kernels import KernelGateway
from rlm_mcp.service.sessions import Clock, Session, Sessions
from rlm_memory import doors
from rlm_memory.doors import Door, DoorEvent, DoorMode
from rlm_memory.store import Store

__all__ = ["Doors"]

log = logging.getLogger(__name__)


class Doors:
    """The doors of all sessions of the daemon."""

    def __init__(
        self, store: Store, sessions: Sessions, gateway: KernelGateway, journal: Journal, clock: Clock
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._gateway = gateway
        self._journal = journal
        self._clock = clock
        self._listed: set[str] = set()
        self._copies: dict[str, set[str]] = {}

    def publish(self, session: Session) -> None:
        """List a session that has no door yet in the front ends of its user, unless its policy has it otherwise."""
        mode = session.policy.doors.mode
        if session.id in self._listed or mode == "none":
            return
        self._listed.add(session.id)
        if doors.of_sessions(self._store, session.id):
            return
        try:
            self._grant(session, DoorMode(mode))
        except OSError as error:
            log.warning("session %s is not listed in Jupyter front ends: %s", session.id, error)

    def add(self, session_id: str, mode: str) -> dict[str, Any]:
        """Return the door of that mode, made if there is none; raises ToolFault if the policy does not permit it."""
        session = self._open(session_id)
        self._refuse_more(session, mode)
        known = [door for door in doors.of_sessions(self._store, session.id) if door.ended_at is None]
        found = next((door for door in known if door.mode == mode), None)
        try:
            return self._row(found or self._grant(session, DoorMode(mode)))
        except OSError as error:
            folder = doorfiles.kernels_folder()
            raise ToolFault("cannot_write", f"{folder}: {error.strerror}", "make the folder writable") from error

    def withdraw(self, session_id: str) -> None:
        """Have a session that has ended listed no more."""
        self._listed.discard(session_id)
        for door in doors.end_all(self._store, session_id, self._clock()):
            self._remove(door.id, doorfiles.spec_folder(door.session, door.mode))

    def tidy(self) -> None:
        """Remove what doors of sessions have left that ended while no daemon was there, and list the others again."""
        doorfiles.sweep()
        published = list(doorfiles.published())
        listed, kept = {door for door, _ in published}, set()
        for door in doors.of_sessions(self._store):
            if self._sessions.get(door.session) is not None and (door.revoked or door.id in listed):
                kept.add(door.id)
            else:
                self.withdraw(door.session)
        for door_id, folder in published:
            if door_id not in kept:
                self._remove(door_id, folder)

    def rest(self) -> None:
        """The daemon leaves: list only sessions that have a kernel, which goes on, until the next one comes."""
        for door in doors.of_sessions(self._store):
            session = self._sessions.get(door.session)
            if not self._gateway.connected or session is None or not session.kernel.alive:
                self._remove(door.id, doorfiles.spec_folder(door.session, door.mode))

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
        session = self._open(door.session)
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
                self._journal.told(session.id, copy, event)
            elif kind == "door" and not event.get("open"):
                self._note(door, "closed")
            elif kind == "ended":
                self._gateway.unlisten(copy)
                self._copies[door.id].discard(copy)

        self._gateway.listen(copy, tell)
        self._copies.setdefault(door.id, set()).add(copy)

    async def adopt(self, copies: list[KernelInfo]) -> list[KernelInfo]:
        """Go on with the copies of an earlier daemon, and what ran in them since; returns those without a door."""
        orphans = []
        for info in copies:
            door = doors.find(self._store, str(info.label["door"]))
            session = self._sessions.get(str(info.label["copy_of"]))
            if door is None or door.ended_at is not None or session is None:
                orphans.append(info)
                continue
            self._follow(session, door, info.kernel_id)
            try:
                client = await self._gateway.client(start=False)
                for note in await client.cells(info.kernel_id, self._journal.last_serial(info.kernel_id)):
                    self._journal.told(session.id, info.kernel_id, note)
            except (KernelError, OSError):  # it has just ended
                self._copies[door.id].discard(info.kernel_id)
        return orphans

    async def revoke(self, door_id: str) -> dict[str, Any]:
        """End a door for good: front ends that have it open lose it at once; raises ToolFault if it is none."""
        door = doors.find(self._store, door_id)
        if door is None or not doors.revoke(self._store, door_id, self._clock()):
            raise ToolFault("door_not_found", f"there is no door {door_id[:80]}", _LIST)
        self._remove(door.id, doorfiles.spec_folder(door.session, door.mode))
        self._note(door, "revoked")
        closed, session = 0, self._sessions.get(door.session)
        places = {(copy, _trusted(door)) for copy in self._copies.get(door.id, ())}
        if session is not None and session.kernel.kernel_id is not None:
            places.add((session.kernel.kernel_id, door.id))
        for kernel_id, name in places:
            try:
                closed += await (await self._gateway.client(start=False)).close_door(kernel_id, name)
            except (KernelError, OSError) as error:
                log.warning("door %s is revoked, but the host does not say that it is closed: %s", door.id, error)
        return {"revoked": door.id, "session": door.session, "closed": closed}

    def rows(self) -> list[dict[str, Any]]:
        """List the doors of all open sessions."""
        return [self._row(door) for door in doors.of_sessions(self._store)]

    def log(self, session_id: str) -> list[dict[str, Any]]:
        """List what happened at a session's doors, the oldest first."""
        events = doors.events(self._store, session_id)
        return [{"door": event.door, "event": event.event, "at": moment(event.at)} for event in events]

    def noted(self, session_id: str, event: dict[str, Any]) -> None:
        """Note what the host tells of a door: of one that a front end has left."""
        if not event.get("open"):
            doors.note(self._store, DoorEvent(str(event.get("door")), session_id, "closed", self._clock()))

    def spec_of(self, session_id: str) -> str | None:
        """Return the name of the kernelspec by which a live session is listed."""
        live = [door for door in doors.of_sessions(self._store, session_id) if door.ended_at is None]
        return doorfiles.spec_name(session_id, live[0].mode) if live else None

    def _grant(self, session: Session, mode: DoorMode) -> Door:
        key = secrets.token_urlsafe(32)
        door = Door(secrets.token_hex(6), session.id, mode, _digest(key), self._clock())
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

    def _row(self, door: Door) -> dict[str, Any]:
        session = self._sessions.get(door.session)
        opened = Counter(session.kernel.doors if session is not None else ())
        return {
            "door": door.id,
            "session": door.session,
            "mode": door.mode.value,
            "open": opened[door.id] + len(self._copies.get(door.id, ())),
            "revoked": door.revoked,
            "kernelspec": doorfiles.spec_name(door.session, door.mode),
            "created": moment(door.created_at),
        }

    def _note(self, door: Door, event: str) -> None:
        log.info("door %s", event, extra={"door": door.id, "session": door.session})
        doors.note(self._store, DoorEvent(door.id, door.session, event, self._clock()))

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
