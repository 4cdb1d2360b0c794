"""Attachments: how a session comes to be listed in Jupyter front ends, and who may open it there.

A session is listed for as long as it lives: `Attachments.publish` gives it a kernelspec and a key,
`Attachments.withdraw` takes both away. A front end that opens it starts a relay, which shows the key here
(`Attachments.enter`) and is told which kernel to ask the supervisor for; the supervisor then holds it to the
attachment's mode.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path

from rlm_ipc.attachment_requests import AttachmentInfo, AttachmentKind, AttachmentOpened, AttachmentRevoked
from rlm_ipc.errors import KernelError
from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.session_record import AttachmentNote
from rlm_ipc.supervisor_protocol import AttachmentChanged, CellEnded, Event, KernelEnded
from rlm_kernel.jupyter import kernelspecs
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_mcp.service.tool_answers import moment
from rlm_memory import attachments, sessions
from rlm_memory.attachments import AttachmentEvent, AttachmentRow
from rlm_memory.errors import SessionEnded
from rlm_memory.sessions import SessionRow
from rlm_memory.store import Store

log = logging.getLogger(__name__)


class Attachments:
    """The attachments of all sessions of the daemon."""

    def __init__(self, store: Store, live: Sessions, gateway: KernelGateway, journal: Journal, clock: Clock) -> None:
        self._store, self._sessions, self._gateway, self._journal, self._clock = store, live, gateway, journal, clock
        self._listed: set[int] = set()
        self._copies: dict[str, AttachmentRow] = {}
        """The copies for developers' own code, by their kernels."""
        self._ended: deque[tuple[str, str]] = deque(maxlen=1000)
        """Attachments whose session has ended lately, with why: a front end that restarts asks for one of them."""

    def publish(self, session: Session) -> None:
        """List a session without an attachment in the front ends of its user, unless its policy forbids it."""
        mode = session.policy.attachments.mode
        if session.key in self._listed or mode == "none":
            return
        self._listed.add(session.key)
        if attachments.of_sessions(self._store, session.key):
            return
        try:
            self._grant(session, AttachmentKind(mode))
        except OSError as error:
            log.warning("session %s is not listed in Jupyter front ends: %s", session.id, error)

    def add(self, session_id: str, mode: AttachmentKind) -> AttachmentInfo:
        """Return the attachment of that mode, made if there is none.

        Raises ToolFault if the policy does not permit it.
        """
        session = self._sessions.named(session_id)
        self._refuse_more(session, mode)
        found = next((attachment for attachment in self._live(session.key) if attachment.mode is mode), None)
        try:
            return self._row(found or self._grant(session, mode), session)
        except OSError as error:
            folder = kernelspecs.kernels_folder()
            raise ToolFault("cannot_write", f"{folder}: {error.strerror}", "make the folder writable") from error

    def withdraw(self, session: Session) -> None:
        """Have a session that has ended, or rests, listed no more."""
        self._listed.discard(session.key)
        for known in attachments.of_sessions(self._store, session.key):
            if not known.revoked:
                attachments.drop(self._store, known.id)
        folders = {kernelspecs.spec_folder(session.id, mode) for mode in AttachmentKind}
        for attachment, folder in kernelspecs.published():
            if folder in folders:
                self._ended.append((attachment, session.kernel.why_ended))
                self._remove(attachment, folder)

    async def end_copies(self) -> None:
        """End the copies for developers' own code whose session is open no more."""
        for copy, attachment in list(self._copies.items()):
            if self._sessions.of_key(attachment.session) is None:
                del self._copies[copy]
                self._gateway.unlisten(copy)
                with suppress(KernelError, OSError):
                    await (await self._gateway.client(start=False)).shutdown(copy)

    def tidy(self) -> None:
        """Remove what attachments of sessions have left that ended while no daemon was there.

        List the others again.
        """
        kernelspecs.sweep()
        with suppress(OSError):  # a home that cannot be written: the kernel is listed where it is installed
            kernelspecs.publish_kernel()
        published = list(kernelspecs.published())
        listed, kept = {attachment for attachment, _ in published}, set()
        for attachment in attachments.of_sessions(self._store):
            if (session := self._sessions.of_key(attachment.session)) is None or attachment.revoked:
                continue
            if attachment.id in listed:
                kept.add(attachment.id)
            else:  # the key is not known here: it gets another attachment
                attachments.drop(self._store, attachment.id)
                self._listed.discard(session.key)
        for attachment_id, folder in published:
            if attachment_id not in kept:
                self._remove(attachment_id, folder)

    def rest(self) -> None:
        """The daemon leaves: list only sessions that have a kernel, which goes on, until the next one comes."""
        for attachment in attachments.of_sessions(self._store):
            session = self._sessions.of_key(attachment.session)
            if session is not None and not (self._gateway.connected and session.kernel.alive):
                self._remove(attachment.id, kernelspecs.spec_folder(session.id, attachment.mode))

    async def enter(self, attachment_id: str, key: str) -> AttachmentOpened:
        """Let a front end in that shows the key: tell the kernel, started if need be, and the attachment's mode.

        Raises ToolFault when the attachment is none, and KernelError when the kernel cannot be started.
        """
        attachment = attachments.find(self._store, attachment_id)
        if attachment is None or attachment.ended_at is not None:
            why = dict(self._ended).get(attachment_id) or "this attachment was revoked, or its session has ended"
            raise ToolFault("attachment_not_found", why, _LIST)
        digest = _digest(key)
        if not hmac.compare_digest(digest, attachment.key_digest):
            self._note(attachment, "refused")
            raise ToolFault("attachment_refused", "the key of the attachment is wrong", _LIST)
        session = self._sessions.of_key(attachment.session)
        if session is None:
            raise ToolFault("attachment_not_found", "the session of this attachment is suspended or has ended", _LIST)
        self._refuse_more(session, attachment.mode)
        with self._sessions.use(session):
            if attachment.mode is AttachmentKind.TRUSTED:
                opened = await self._copy(session, attachment)
            else:
                watches = attachment.mode is AttachmentKind.WATCH
                opened = AttachmentOpened(await session.kernel.open(), attachment.id, watches=watches)
        self._note(attachment, "opened")
        return opened

    async def _copy(self, session: Session, attachment: AttachmentRow) -> AttachmentOpened:
        """Make the copy of a session in which a developer's own code runs; it ends with the front end."""
        copy = await session.kernel.copy_for(attachment.id)
        self._follow(session, attachment, copy)
        return AttachmentOpened(copy, _trusted(attachment), owned=True)

    def _follow(self, session: Session, attachment: AttachmentRow, copy: str) -> None:
        """Write down what happens in a copy."""

        def tell(event: Event) -> None:
            if isinstance(event, CellEnded):
                self._journal.told(session.key, copy, event.cell)
            elif isinstance(event, AttachmentChanged) and not event.open:
                self._note(attachment, "closed")
            elif isinstance(event, KernelEnded):
                self._gateway.unlisten(copy)
                self._copies.pop(copy, None)

        self._gateway.listen(copy, tell)
        self._copies[copy] = attachment

    async def adopt(self, copies: list[KernelInfo]) -> list[KernelInfo]:
        """Go on with the copies of an earlier daemon, and what ran in them since.

        Returns those without an attachment.
        """
        orphans = []
        for info in copies:
            attachment = attachments.find(self._store, str(info.label.get("attachment")))
            session = self._sessions.of_key(info.label.get("copy_of"))
            if (
                attachment is None
                or attachment.ended_at is not None
                or session is None
                or info.label.get("policy") != session.pinned.digest
            ):
                orphans.append(info)
                continue
            self._follow(session, attachment, info.kernel_id)
            try:
                client = await self._gateway.client(start=False)
                for note in await client.cells(info.kernel_id, self._journal.last_serial(info.kernel_id)):
                    self._journal.told(session.key, info.kernel_id, note)
            except (KernelError, OSError):  # it has just ended
                self._gateway.unlisten(info.kernel_id)
                self._copies.pop(info.kernel_id, None)
        return orphans

    async def revoke(self, attachment_id: str) -> AttachmentRevoked:
        """End an attachment for good: front ends that have it open lose it at once; raises ToolFault if it is none."""
        attachment = attachments.find(self._store, attachment_id)
        if attachment is None or not attachments.revoke(self._store, attachment_id, self._clock()):
            raise ToolFault("attachment_not_found", f"there is no attachment {attachment_id[:80]}", _LIST)
        name = sessions.name_of(self._store, attachment.session)
        self._remove(attachment.id, kernelspecs.spec_folder(name, attachment.mode))
        self._note(attachment, "revoked")
        return AttachmentRevoked(attachment.id, name, await self._close(attachment))

    async def close(self, session: Session) -> None:
        """End the attachments of a session that goes on under another policy.

        `publish` makes the one that it permits.
        """
        known = attachments.of_sessions(self._store, session.key)
        self.withdraw(session)
        for attachment in known:
            await self._close(attachment)

    async def _close(self, attachment: AttachmentRow) -> int:
        """Have front ends lose an attachment that they have open; returns how many did."""
        closed, session = 0, self._sessions.of_key(attachment.session)
        places = {(copy, _trusted(attachment)) for copy, of in self._copies.items() if of.id == attachment.id}
        if session is not None and session.kernel.kernel_id is not None:
            places.add((session.kernel.kernel_id, attachment.id))
        for kernel_id, place in places:
            try:
                closed += await (await self._gateway.client(start=False)).detach(kernel_id, place)
            except (KernelError, OSError) as error:
                said = "attachment %s is revoked, but the supervisor did not confirm that it is closed: %s"
                log.warning(said, attachment.id, error)
        return closed

    def rows(self) -> tuple[AttachmentInfo, ...]:
        """List the attachments of all open sessions."""
        found = [(known, self._sessions.of_key(known.session)) for known in attachments.of_sessions(self._store)]
        return tuple(self._row(attachment, session) for attachment, session in found if session is not None)

    def log(self, session: int) -> list[AttachmentNote]:
        """List what happened at a session's attachments, the oldest first."""
        events = attachments.events(self._store, session)
        return [AttachmentNote(event.attachment, event.event, moment(event.at)) for event in events]

    def noted(self, session: Session, event: AttachmentChanged) -> None:
        """Note what the supervisor tells of an attachment: of one that a front end has left."""
        if not event.open:
            self._write(AttachmentEvent(event.attachment, session.key, "closed", self._clock()))

    def spec_of(self, session: SessionRow) -> str | None:
        """Return the name of the kernelspec by which a live session is listed."""
        live = self._live(session.key)
        return kernelspecs.spec_name(session.id, live[0].mode) if live else None

    def _live(self, session: int) -> list[AttachmentRow]:
        return [known for known in attachments.of_sessions(self._store, session) if known.ended_at is None]

    def _grant(self, session: Session, mode: AttachmentKind) -> AttachmentRow:
        key = secrets.token_urlsafe(32)
        attachment = AttachmentRow(secrets.token_hex(6), session.key, mode, _digest(key), self._clock())
        attachments.grant(self._store, attachment)
        kernelspecs.publish(attachment.id, session.id, mode.value, key)
        return attachment

    @staticmethod
    def _refuse_more(session: Session, mode: str) -> None:
        permitted = session.policy.attachments
        why = ""
        if permitted.mode == "none" or (permitted.mode == "watch" and mode != "watch"):
            why = f"the policy {session.row.policy!r} has attachments.mode: {permitted.mode}"
        elif mode == "trusted" and not permitted.trusted:
            why = f"the policy {session.row.policy!r} has attachments.trusted: false"
        if why:
            raise ToolFault("attachment_not_permitted", why, "start the session with another policy")

    def _row(self, attachment: AttachmentRow, session: Session) -> AttachmentInfo:
        opened = Counter(session.kernel.attachments)
        return AttachmentInfo(
            attachment=attachment.id,
            session=session.id,
            mode=attachment.mode,
            open=opened[attachment.id] + sum(of.id == attachment.id for of in self._copies.values()),
            revoked=attachment.revoked,
            kernelspec=kernelspecs.spec_name(session.id, attachment.mode),
            created=moment(attachment.created_at),
        )

    def _note(self, attachment: AttachmentRow, event: str) -> None:
        log.info("attachment %s", event, extra={"attachment": attachment.id})
        self._write(AttachmentEvent(attachment.id, attachment.session, event, self._clock()))

    def _write(self, event: AttachmentEvent) -> None:
        with suppress(SessionEnded):  # of its attachment nothing is kept any more
            attachments.note(self._store, event)

    @staticmethod
    def _remove(attachment: str, folder: Path) -> None:
        try:
            kernelspecs.withdraw(attachment, folder)
        except OSError as error:
            log.warning("the kernelspec of attachment %s cannot be removed: %s", attachment, error)


_LIST = "list the attachments: rlm-kernel attachments list"


def _trusted(attachment: AttachmentRow) -> str:
    """How the supervisor knows the attachment of a copy."""
    return f"trusted-{attachment.id}"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
