"""How a supervisor continues with what its predecessor left: kernels, copies, zygotes, gates, texts and sockets.

The keeper holds their descriptors, and a file of each session says what they are (`kept_session`). A process that no
file names was still being made when the other supervisor died, and ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from rlm_ipc.errors import KernelError
from rlm_ipc.framed_stream import Unfinished
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.version import VERSION
from rlm_ipc.worker_protocol import SPEAKS
from rlm_kernel.keeper.keeper import has_ended
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.copies.checkpoints import Checkpoint
from rlm_kernel.supervisor.copies.equipment import BoundText
from rlm_kernel.supervisor.keeping.given_images import GivenImage
from rlm_kernel.supervisor.keeping.held_pipes import Space, Tether
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.keeping.session_file import SPEC, STATE, SessionFile
from rlm_kernel.supervisor.processes.fork_broker import ForkBroker
from rlm_kernel.supervisor.processes.worker_link import WorkerLink
from rlm_kernel.supervisor.running.driver import GivenOut
from rlm_kernel.supervisor.running.kept_session import KeptQueries, KeptSpec, KeptState, kept_queries
from rlm_kernel.supervisor.session import SupervisedSession

log = logging.getLogger(__name__)

T = TypeVar("T")
NewSession = Callable[[KeptSpec, SessionFile], SupervisedSession]
GivenUp = Callable[[KeptSpec, Exception], None]
DEADLY = 2
"""After this many supervisors have failed at one session, it is set aside."""
SET_ASIDE = f"{DEADLY} supervisors in a row failed when they took the session over, so its kernel was ended"
OTHER_VERSION = "another version of rlm-kernel started its kernel, and ended before it could hand it over"


@dataclass(frozen=True, slots=True)
class LeftSession:
    """A session as it was left: its object, the listening descriptors, and the request in progress."""

    session: SupervisedSession
    listeners: tuple[int, ...]
    given_out: GivenOut | None


class Adoption:
    """Adopts what ``keeping`` holds from the previous supervisor."""

    def __init__(self, keeping: Keeping, unfinished: Unfinished) -> None:
        self._keeping, self._unfinished = keeping, unfinished
        self._links = dict(self._read_each("process/", self._link))
        self._gates: dict[str, ForkBroker] = {}
        self._files: set[str] = set()
        """The names under which the texts and images of the sessions are kept."""

    def zygotes(self, entry: str) -> dict[tuple[str, ...], WorkerLink]:
        """Return the living zygotes, or the heirs, by the modules they have imported."""
        found = {}
        for name, (version, preload, link) in self._read_each(entry, self._zygote):
            if version != VERSION:
                link.drop()  # the next sessions must be of this version
                self._keeping.drop(name)
            elif not link.dead:
                found[preload] = link
        return found

    def _zygote(self, name: str) -> tuple[str, tuple[str, ...], WorkerLink]:
        _, version, preload = name.split("/", 2)
        link = self._link(name)
        link.is_zygote = True
        return version, tuple(filter(None, preload.split(","))), link

    def _read_each(
        self, entry: str, read: Callable[[str], T], failed: Callable[[str, Exception], None] | None = None
    ) -> Iterator[tuple[str, T]]:
        """Yield what was read under each name of that kind.

        What cannot be read is given up, after calling ``failed``.
        """
        for name in self._keeping.names(entry):
            try:
                value = read(name)
            except Exception as error:  # one unreadable entry must not end this supervisor, and each later one
                log.exception("what an earlier supervisor left of %s cannot be used and is given up", name)
                if failed is not None:
                    failed(name, error)
                self._keeping.drop(name)
            else:
                yield name, value

    def sessions(self, new_session: NewSession, given_up: GivenUp) -> list[LeftSession]:
        """Return the sessions, which do not work yet; what belongs to none is given up."""

        def read(name: str) -> LeftSession:
            left = self._session(name, new_session)
            left.session.kept.file.taken_over()
            return left

        def failed(name: str, error: Exception) -> None:
            with suppress(Exception):
                given_up(self._spec(name), error)

        adopted = [left for _, left in self._read_each("session/", read, failed)]
        for link in self._links.values():
            if not link.dead:
                link.drop()
        for name in self._keeping.names("gate/"):
            if name not in self._gates:
                self._keeping.drop(name)
        for name in (*self._keeping.names("text/"), *self._keeping.names("image/")):
            if name not in self._files:
                self._keeping.drop(name)
        return adopted

    def _copies(self, name: str) -> tuple[int, ...]:
        """Return duplicates of the descriptors kept under a name."""
        entry = self._keeping.entries.get(name)
        return tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0) for fd in entry.descriptors) if entry else ()

    def _link(self, name: str) -> WorkerLink:
        pid, protocol = map(int, self._keeping.entries[name].content.split()[:2])  # other versions add more fields
        lifeline, pidfd, *pipes = self._copies(name)
        space = Space.of(pipes[1]) if len(pipes) > 1 else None
        link = WorkerLink(socket.socket(fileno=lifeline), self._keeping, self._unfinished, space)
        link.key, link.tether = name, Tether.of(pipes[0]) if pipes else None
        link.protocol = protocol
        link.take_over(pid, pidfd, dead=has_ended(pidfd))
        return link

    def _session(self, name: str, new_session: NewSession) -> LeftSession:
        file_fd, *listeners = self._copies(name)
        file = SessionFile(file_fd)
        if file.begin_taking_over(before_failed=self._keeping.before_failed) >= DEADLY:
            raise KernelError(SET_ASIDE)
        state = file.read(STATE, KeptState)
        if (live := self._links.get(state.live)) is not None and not SPEAKS.has(live.protocol):
            raise KernelError(OTHER_VERSION)
        session = new_session(file.read(SPEC, KeptSpec), file)
        self._restore_processes(session, state, file)
        self._restore_texts(session, state)
        self._restore_rest(session, state, kept_queries(file))
        cells, only_cells, pristine, counted = file.cells
        checkpoints = session.checkpoints
        checkpoints.cells, checkpoints.only_cells, checkpoints.pristine = cells, only_cells, pristine
        session.kept.adopted({text.key for text in state.texts}, counted)
        return LeftSession(session, tuple(listeners), _given_out(file))

    def _spec(self, name: str) -> KeptSpec:
        file = SessionFile(self._copies(name)[0])
        try:
            return file.read(SPEC, KeptSpec)
        finally:
            file.close()

    def _restore_processes(self, session: SupervisedSession, state: KeptState, file: SessionFile) -> None:
        live = self._links.pop(state.live, None) or WorkerLink.gone(self._keeping, self._unfinished)
        session.processes.live = live
        for copy in state.copies:
            peer = self._links.pop(copy.key, None)
            if peer is not None and not peer.dead:
                peer.attached = state.attached.get(copy.key, {})
                session.checkpoints.copies.append(Checkpoint(peer, copy.cells, copy.threads))
                peer.report_to(session)
        for image in state.images:
            if image.key in self._keeping.entries:
                self._files.add(image.key)
                session.checkpoints.images.append(GivenImage(image, self._keeping))
        live.attached = state.attached.get(state.live, {})
        if state.gate:
            session.processes.use_gate(self._gate(state.gate, session))
        session.processes.walls.states = dict(state.walls)
        session.processes.anew_at = state.anew_at
        session.watch.base = state.memory_base

    def _gate(self, name: str, session: SupervisedSession) -> ForkBroker | None:
        if (known := self._gates.get(name)) is not None:
            return known.share(session.processes)
        descriptors = self._copies(name)
        if not descriptors:
            return None
        fd, *memory = descriptors  # an earlier version had none
        gate = ForkBroker(fd, session.processes, self._keeping, name, memory[0] if memory else None)
        self._gates[name] = gate
        return gate

    def _restore_texts(self, session: SupervisedSession, state: KeptState) -> None:
        equipment = session.equipment
        for text in state.texts:
            self._files.add(text.key)
            bound = BoundText(self._copies(text.key), text.header, text.type, text.metadata, text.revision, text.serial)
            equipment.contexts[text.name] = bound
        equipment.serial = state.text_serial
        equipment.shadowed, equipment.told = frozenset(state.shadowed), frozenset(state.told)

    def _restore_rest(self, session: SupervisedSession, state: KeptState, queries: KeptQueries) -> None:
        session.queue.last_used = state.last_used
        if state.refused:
            refusals = session.refusals
            refusals.calls, refusals.audited, refusals.cells = state.refused
            refusals.latest = state.refused_call
        session.history.remember(state.history)
        if state.untold_loss is not None:
            session.recovery.untold = state.untold, state.untold_loss
        session.queries.restore(
            max(queries.next_number, session.queries.next_number),
            queries.pending,
            queries.answers,
        )
        session.processes.number_queries_from(session.queries.next_number)


def _given_out(file: SessionFile) -> GivenOut | None:
    serial, answered = file.running
    if not serial:
        return None
    request = CellRequest.of_kept(file.request(), asyncio.get_running_loop().create_future())
    request.told = answered
    return None if answered and request.direct is None else GivenOut(request, serial, answered)
