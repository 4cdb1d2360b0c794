"""What the supervisor records about one session, so that the next one can continue it (`adoption`)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from rlm_ipc.kernel_reports import AskedQuery, QueryOutcome, WallState
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_ipc.outcomes import Loss
from rlm_ipc.supervisor_protocol import Spawn
from rlm_kernel.supervisor.cells.cell_history import CellHistory, UndoneCell
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.cells.query_book import QueryBook
from rlm_kernel.supervisor.cells.request_queue import RequestQueue
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.copies.equipment import Equipment
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.copies.memory_watch import MemoryWatch
from rlm_kernel.supervisor.copies.recovery import Recovery
from rlm_kernel.supervisor.keeping.given_images import KeptImage
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.keeping.session_file import FAILED, QUERIES, SPEC, STATE, FailedRun, SessionFile
from rlm_kernel.supervisor.processes.refusals import Refusals


@dataclass(frozen=True, slots=True)
class KeptCopy:
    """A checkpoint: the name under which the keeper holds its process, and the fields of `checkpoints.Checkpoint`."""

    key: str
    cells: int
    threads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptText:
    """A context (`equipment.BoundText`); the keeper holds its descriptors under ``key``."""

    key: str
    name: str
    header: JsonObject
    type: str
    metadata: JsonObject
    revision: int
    serial: int


@dataclass(frozen=True, slots=True)
class KeptSpec:
    """What never changes."""

    spawn: Spawn
    connection: JsonObject
    kernel_info: JsonObject


@dataclass(frozen=True, slots=True)
class KeptState:
    """The processes of a session, and what the supervisor knows of them."""

    live: str = ""
    copies: tuple[KeptCopy, ...] = ()
    images: tuple[KeptImage, ...] = ()
    attached: dict[str, dict[str, int]] = field(default_factory=dict)
    """For each process the serials of the contexts that it has."""
    gate: str = ""
    walls: dict[str, WallState] = field(default_factory=dict)
    memory_base: int = 0
    texts: tuple[KeptText, ...] = ()
    text_serial: int = 0
    shadowed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    refused: tuple[int, ...] = ()
    refused_call: str = ""
    history: tuple[UndoneCell, ...] = ()
    untold: str = ""
    untold_loss: Loss | None = None
    """A loss that no cell has been told about yet, and its reason."""
    last_used: float = 0.0
    anew_at: float = 0.0


@dataclass(frozen=True, slots=True)
class KeptQueries:
    """The query book of a session, or what has changed in it. ``withdrawn`` are queries that wait for no answer."""

    next_number: int = 0
    pending: tuple[AskedQuery, ...] = ()
    answers: dict[str, QueryOutcome] = field(default_factory=dict)
    withdrawn: tuple[str, ...] = ()


class NotedSession(Protocol):
    """A session as it is recorded; see `session.SupervisedSession`."""

    kernel_id: str
    processes: KernelProcesses
    checkpoints: Checkpoints
    equipment: Equipment
    refusals: Refusals
    history: CellHistory
    queries: QueryBook
    recovery: Recovery
    queue: RequestQueue
    watch: MemoryWatch


class KeptSession:
    """Records one session in its ``file``, which the keeper holds."""

    def __init__(self, keeping: Keeping, file: SessionFile, checkpoints: Checkpoints) -> None:
        self.keeping, self.file = keeping, file
        self._checkpoints = checkpoints
        self._texts: set[str] = set()
        self.counted = 0
        """The number of the last request that the live process completed."""
        self._completed: tuple[int, int, bool, bool] | None = None
        self._noted: tuple[object, ...] = ()
        self._queries_noted = False

    def note_cells(self) -> None:
        """Record what the live process has completed."""
        known = self._checkpoints
        completed = known.cells, self.counted, known.only_cells, known.pristine
        if completed != self._completed:
            self._completed = completed
            self.file.note_cells(*completed)

    def begin(self, request: CellRequest, started: float) -> int:
        """Record the request that is about to go out. Return its number."""
        self.note_cells()
        serial = self.keeping.next_serial()
        self.file.begin(serial, request.kept(), started, time.monotonic())
        # After the request itself: a known name of an unknown request means that the answer was lost.
        if request.direct is not None and isinstance(request.run, str):
            self.file.note_run(request.run)
        return serial

    def note(self, session: NotedSession) -> None:
        """Record everything that has changed."""
        self.note_cells()
        known = _structure(session)
        if known != self._noted:
            self._noted = known
            self._keep_texts(session)
            self.file.write(STATE, _state_of(session))
        self.note_queries(session.queries)

    def note_queries(self, book: QueryBook) -> None:
        """Record what has changed in the query book."""
        changed = book.take_changed()
        if not changed and self._queries_noted:
            return
        # Only the changes: a session may have thousands of answers, and each query would take longer than the last one.
        if not self._queries_noted or not self.file.add(QUERIES, _queries_of(book, changed)):
            everything = _queries_of(book, [*book.pending, *book.answers])
            self._queries_noted = self.file.write(QUERIES, everything)

    def _keep_texts(self, session: NotedSession) -> None:
        texts = {text_key(session.kernel_id, text.serial): text for text in session.equipment.contexts.values()}
        for key in self._texts - texts.keys():
            self.keeping.drop(key)
        for key in texts.keys() - self._texts:
            self.keeping.put(key, texts[key].descriptors)
        self._texts = set(texts)

    def enter(self, kernel_id: str, spec: KeptSpec, listeners: Sequence[int]) -> None:
        """Register the session at the keeper, with the descriptors of its listening sockets."""
        self.file.write(SPEC, spec)
        self.keeping.put(session_key(kernel_id), (self.file.fd, *listeners))

    def adopted(self, texts: set[str], counted: int) -> None:
        """Continue to record a session that another supervisor registered."""
        self._texts, self.counted = texts, counted

    def failed(self, request: CellRequest) -> None:
        """Record an answer that no process will repeat: it reports a loss, once."""
        if request.direct is not None:
            self.file.write(FAILED, FailedRun(str(request.run), request.direct.result()))
            self.file.note_run(str(request.run))

    def close(self, kernel_id: str) -> None:
        """Forget a session that has ended."""
        for key in self._texts:
            self.keeping.drop(key)
        self.keeping.drop(session_key(kernel_id))
        self.file.close()


def kept_queries(file: SessionFile) -> KeptQueries:
    """Return the last record of the query book."""
    number, pending, answers = 0, dict[str, AskedQuery](), dict[str, QueryOutcome]()
    for noted in (file.read(QUERIES, KeptQueries), *file.changes(QUERIES, KeptQueries)):
        number = noted.next_number
        pending |= {row.id: row for row in noted.pending}
        answers |= noted.answers
        for name in (*noted.answers, *noted.withdrawn):
            pending.pop(name, None)
    return KeptQueries(number, tuple(pending.values()), answers)


def _queries_of(book: QueryBook, names: Sequence[str]) -> KeptQueries:
    return KeptQueries(
        book.next_number,
        tuple(book.pending[name] for name in names if name in book.pending),
        {name: book.answers[name] for name in names if name in book.answers},
        tuple(name for name in names if name not in book.pending and name not in book.answers),
    )


def session_key(kernel_id: str) -> str:
    """Return the name under which the keeper holds a session."""
    return f"session/{kernel_id}"


def text_key(kernel_id: str, serial: int) -> str:
    """Return the name under which the keeper holds a text of a session."""
    return f"text/{kernel_id}/{serial}"


def _structure(session: NotedSession) -> tuple[object, ...]:
    """Return what `_state_of` records, except for the history: cheap to compare after each cell."""
    live, equipment, refusals = session.processes.live, session.equipment, session.refusals
    return (
        live.key if live is not None else "",
        tuple((copy.peer.key, copy.cells) for copy in session.checkpoints.copies),
        tuple(image.kept.key for image in session.checkpoints.images),
        session.processes.gate,
        id(session.processes.walls.states),
        tuple(text.serial for text in equipment.contexts.values()),
        equipment.shadowed,
        refusals.calls + refusals.audited + refusals.cells,
        session.recovery.untold,
    )


def _state_of(session: NotedSession) -> KeptState:
    processes, checkpoints, equipment = session.processes, session.checkpoints, session.equipment
    gate, refusals = processes.gate, session.refusals
    return KeptState(
        live=processes.live.key if processes.live is not None else "",
        copies=tuple(KeptCopy(copy.peer.key, copy.cells, copy.threads) for copy in checkpoints.copies),
        images=tuple(image.kept for image in checkpoints.images),
        attached={link.key: dict(link.attached) for link in processes.links() if link.attached},
        gate=gate.name if gate is not None else "",
        walls=dict(processes.walls.states),
        memory_base=session.watch.base,
        texts=tuple(
            KeptText(
                text_key(session.kernel_id, text.serial),
                name,
                text.header,
                text.type,
                text.metadata,
                text.revision,
                text.serial,
            )
            for name, text in equipment.contexts.items()
        ),
        text_serial=equipment.serial,
        shadowed=tuple(equipment.shadowed),
        told=tuple(equipment.told),
        refused=(refusals.calls, refusals.audited, refusals.cells),
        refused_call=refusals.latest,
        history=session.history.cells,
        untold="" if session.recovery.untold is None else session.recovery.untold[0],
        untold_loss=None if session.recovery.untold is None else session.recovery.untold[1],
        last_used=session.queue.last_used,
        anew_at=processes.anew_at,
    )
