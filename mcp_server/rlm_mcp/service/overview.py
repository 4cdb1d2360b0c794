"""The overview for a person: all sessions at a glance, and one of them in detail.

Reading it changes nothing: it opens no session, keeps none from idling, and runs none of the user's code. A kernel's
answers are bounded here before they are passed on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import suppress

from rlm_client.rlm.prompts import is_set_up
from rlm_ipc.daemon_rows import AskedLine, FrameLine, PastLine, RestingLine, SessionLine
from rlm_ipc.displays import MOST_KEPT_CHARS, unstyled, with_traceback
from rlm_ipc.errors import KernelError
from rlm_ipc.kernel_reports import KernelInfo
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.session_requests import SessionsSeen
from rlm_ipc.worker_requests import VariableRow
from rlm_mcp.formats.markdown_tree import Tree, apart
from rlm_mcp.formats.pictures import pictures_in
from rlm_mcp.service.cells.cell_answers import missing_copy
from rlm_mcp.service.cells.pictures import picture_of
from rlm_mcp.service.cells.runs import Runs
from rlm_mcp.service.contexts.variables import KernelVariables
from rlm_mcp.service.session_events import Events
from rlm_mcp.service.sessions.journal import Journal
from rlm_mcp.service.sessions.sessions import Session, Sessions
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_memory import contexts, journal, queries, sessions
from rlm_memory.frames import survey
from rlm_memory.frames import tree as frames
from rlm_memory.journal import JournalEntry
from rlm_memory.queries import QueryRow
from rlm_memory.sessions import SessionStatus
from rlm_memory.store import Store
from rlm_sandbox.policy import WALL_NAMES

_MOST_PAST = 20
"""How many ended sessions are shown."""
_MOST_CELLS = 40
_MOST_QUERIES = 50
_MOST_GOALS = 100
_MOST_VARIABLES = 500
_LONGEST_TEXT = 4000
"""How many characters of a cell's code, of its output and of a prompt are shown; the journal has more."""
_LONGEST_LIVE = 20_000
"""How many of the last characters of a running cell's output are shown."""
_LONGEST_WORD = 200


@dataclass(frozen=True, slots=True)
class CellLine:
    """A cell of the journal, with long texts cut. ``started`` is in epoch seconds. ``pictures`` is how many it showed.

    ``markdown`` is the Markdown that it showed, and ``count`` its number in the kernel.
    """

    number: int
    author: str
    status: str
    started: float
    seconds: float
    code: str
    output: str
    queries: tuple[str, ...]
    pictures: int
    count: int | None
    markdown: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class VariableLine:
    """A loaded text, or a variable of code; ``lines`` is None if it has none."""

    name: str
    type: str
    size: int
    lines: int | None
    preview: str
    text: bool


@dataclass(frozen=True, slots=True)
class VariableList:
    """The largest first; ``note`` says why it may be out of date."""

    rows: tuple[VariableLine, ...] = ()
    note: str = ""

    @classmethod
    def by_size(cls, rows: Iterable[VariableLine], note: str = "") -> VariableList:
        """Return them as a list."""
        return cls(tuple(sorted(rows, key=lambda row: (-row.size, row.name))), note)


class Overview:
    """Reads the sessions of the daemon."""

    def __init__(
        self,
        store: Store,
        live: Sessions,
        gateway: KernelGateway,
        runs: Runs,
        journal: Journal,
        variables: KernelVariables,
        events: Events,
    ) -> None:
        self.store, self.live, self.gateway, self.runs = store, live, gateway, runs
        self.journal, self.variables, self.events = journal, variables, events

    async def overview(self) -> SessionsSeen:
        """Return every open session with its state and contents, suspended and recent sessions, and open queries."""
        kernels = await self._kernels()
        live = sorted(self.live, key=lambda session: session.id)
        with self.store.transaction():  # one transaction for everything that is read
            parents = frames.parents(self.store, [session.key for session in live])
            pending = {session.key: queries.pending(self.store, session.key) for session in live}
            rows = [
                self._row(session, _kernel_of(session, kernels), parents.get(session.key), len(pending[session.key]))
                for session in live
            ]
            resting = sessions.all_sessions(self.store, SessionStatus.RESTING, most=_MOST_PAST)
            endings = sessions.latest_endings(self.store, _MOST_PAST)
            goals = survey.running(self.store, _MOST_GOALS)
        asked = ((session.id, query) for session in live for query in pending[session.key])
        return SessionsSeen(
            sessions=tuple(rows),
            resting=tuple(RestingLine(row.id, row.policy, row.last_used_at, row.kept_until) for row in resting),
            past=tuple(PastLine(end.id, end.how.value, end.at) for end in endings),
            asked=tuple(_asked(*one) for one in itertools.islice(asked, _MOST_QUERIES)),
            frames=tuple(
                FrameLine(row.id, row.parent, unstyled(row.goal), row.status, row.session, row.started) for row in goals
            ),
        )

    async def picture(self, session: str, cell: int, number: int) -> bytes:
        """Return a picture that a cell of the journal showed, as PNG.

        Raises:
            ToolFault: there is no such picture, or it cannot be passed on.
        """
        self.journal.flush()
        row = sessions.find(self.store, session)
        entry = None if row is None else journal.find(self.store, row.key, cell)
        return await picture_of(() if entry is None else entry.displays, number)

    def viewer(self, session: str) -> Viewer:
        """Return a follower of one session."""
        return Viewer(self, session)

    async def _kernels(self) -> dict[str, KernelInfo]:
        """Return the supervisor's kernels by id; none if there is no supervisor."""
        with suppress(KernelError, OSError):
            client = await self.gateway.client(start=False)
            return {info.kernel_id: info for info in await client.kernels()}
        return {}

    def _row(self, session: Session, kernel: KernelInfo | None, parent: str | None, pending: int) -> SessionLine:
        walls = kernel.walls if kernel is not None else {}
        return SessionLine(
            session=session.id,
            state=state_of(session, kernel),
            policy=session.row.policy,
            workspace=session.row.workspace,
            memory_bytes=kernel.memory_bytes if kernel is not None else 0,
            memory_limit=session.policy.limits.memory_bytes,
            walls_standing=sum(wall.standing for wall in walls.values()),
            walls_missing=tuple(name for name, wall in walls.items() if not wall.standing),
            refused=kernel.refused.system_calls + kernel.refused.audit if kernel is not None else 0,
            refused_cells=kernel.refused.cells if kernel is not None else 0,
            contexts=len(contexts.names(self.store, session.key)),
            content_bytes=contexts.charged_bytes(self.store, session.key),
            active_cells=len(self.runs.active(session)),
            last_used=max(session.last_used, kernel.last_used if kernel is not None else 0.0),
            parent=parent,
            pending=pending,
        )


class Viewer:
    """Follows one session; unchanged parts are not requested again."""

    def __init__(self, watch: Overview, session: str) -> None:
        self._watch = watch
        self._name = session
        self._cells: list[CellLine] = []
        self._newest = 0
        self._listed = VariableList()
        self._seen: tuple[object, ...] = ()

    async def look(self) -> JsonObject | None:
        """Return the session as separate parts, or None if it does not exist."""
        watch = self._watch
        row = sessions.find(watch.store, self._name)
        if row is None:
            self._cells, self._newest, self._listed, self._seen = [], 0, VariableList(), ()
            return None
        session = watch.live.get(self._name)
        last = watch.journal.of_session(row.key, 1)
        self._follow_journal(row.key, last)
        journal = [plain(cell) for cell in self._cells]
        if session is None:
            about = {"session": row.id, "state": row.state.value, "policy": row.policy, "workspace": row.workspace}
            closed: JsonObject = {"about": about, "walls": [], "running": None, "queries": []}
            return {**closed, "variables": plain(VariableList()), "journal": journal}
        kernel = await session.kernel.seen()
        await self._follow_variables(session, kernel, last)
        pending = queries.pending(watch.store, session.key)
        durable, unsaved = session.policy.checkpoint == "durable", watch.events.durable.of(session)
        return {
            "about": {**_about(session, kernel), "unsaved": plain(unsaved) if durable else None},
            "walls": _walls(session, kernel),
            "running": await self._running(session, kernel),
            "queries": [plain(_asked(session.id, row)) for row in pending[:_MOST_QUERIES]],
            "variables": plain(self._listed),
            "journal": journal,
        }

    async def _running(self, session: Session, kernel: KernelInfo | None) -> JsonObject | None:
        if kernel is None or kernel.state != "busy":
            return None
        with suppress(KernelError, OSError):
            client = await self._watch.gateway.client(start=False)
            output = await client.running(kernel.kernel_id)
            if output.cell is not None:
                return {
                    "code": _cut(output.cell.code),
                    "author": output.cell.author,
                    "since": output.cell.since,
                    "stdout": _tail(output.stdout),
                    "stderr": _tail(output.stderr),
                    "waits_for": kernel.waiting,
                    "behind": max(0, len(self._watch.runs.active(session)) - 1),
                }
        return None

    def _follow_journal(self, session: int, last: list[JournalEntry]) -> None:
        number = last[0].number if last else 0
        if number != self._newest:
            self._newest = number
            entries = self._watch.journal.of_session(session, _MOST_CELLS)
            self._cells = [_cell(entry) for entry in reversed(entries) if not is_set_up(entry.code)]

    async def _follow_variables(self, session: Session, kernel: KernelInfo | None, last: list[JournalEntry]) -> None:
        """List the variables again if a cell has ended or texts have changed; asking costs the kernel time."""
        rows = contexts.of_session(self._watch.store, session.key)
        number = last[0].number if last else 0
        kept = [(row.name, row.revision) for row in rows]
        seen = (number, kept, kernel.kernel_id if kernel else "", kernel.pid if kernel else 0)
        if seen == self._seen:
            return
        shadowed = set(kernel.shadowed) if kernel else set()
        texts = [_text(row, row.name in shadowed) for row in rows]
        made: list[VariableRow] | None = []
        with suppress(KernelError, OSError):
            made = None if kernel and kernel.state == "busy" else await self._watch.variables.rows(session)
            self._seen = self._seen if made is None else seen
        if made is None:
            known = [row for row in self._listed.rows if not row.text]
            note = "as they were before the running cell" if known else "listed when the cell ends"
            self._listed = VariableList.by_size([*texts, *known], note)
            return
        self._listed = VariableList.by_size([*texts, *map(_variable, made[:_MOST_VARIABLES])])


def state_of(session: Session, kernel: KernelInfo | None) -> str:
    """Return the state of the session: not started, idle, running, waiting (for answers) or lost."""
    if session.kernel.info is None:
        return "lost" if session.kernel.notice else "not started"
    if kernel is None:
        return "lost"
    if kernel.waiting:
        return "waiting"
    return "running" if kernel.state == "busy" else "idle"


def _kernel_of(session: Session, kernels: dict[str, KernelInfo]) -> KernelInfo | None:
    return kernels.get(session.kernel.kernel_id) if session.kernel.kernel_id is not None else None


def _about(session: Session, kernel: KernelInfo | None) -> JsonObject:
    policy, limits = session.policy, session.policy.limits
    return {
        "session": session.id,
        "state": state_of(session, kernel),
        "notice": session.kernel.notice,
        "policy": session.row.policy,
        "policy_says": policy.description,
        "policy_sha256": session.pinned.digest,
        "network": policy.network,
        "checkpoint": policy.checkpoint,
        "uncopied": missing_copy(kernel.uncopied) if kernel is not None and kernel.uncopied is not None else None,
        "workspace": session.row.workspace,
        "created": session.row.created_at,
        "pid": kernel.pid if kernel is not None else None,
        "memory_bytes": kernel.memory_bytes if kernel is not None else 0,
        "memory_limit": limits.memory_bytes,
        "cell_seconds": limits.cell_seconds,
        "idle_seconds": limits.idle_seconds,
        "can_undo": kernel.undoable if kernel is not None else [],
        "latest": [unstyled(code) for code in kernel.latest] if kernel is not None else [],
        "attachments": len(kernel.attachments) if kernel is not None else 0,
        "connection_file": kernel.connection_file if kernel is not None else None,
        "refused": plain(kernel.refused) if kernel is not None else None,
        "refused_limit": limits.refused_attempts,
    }


def _walls(session: Session, kernel: KernelInfo | None) -> list[JsonObject]:
    if kernel is None:
        return []
    return [
        {
            "name": name,
            "standing": kernel.walls[name].standing,
            "detail": kernel.walls[name].detail[:_LONGEST_TEXT],
            "required": name in session.policy.walls.require,
        }
        for name in WALL_NAMES
        if name in kernel.walls
    ]


def _cell(entry: JournalEntry) -> CellLine:
    seconds = round(entry.ended_at - entry.started_at, 3)
    markdown, written = apart(entry.displays, entry.output)
    return CellLine(
        entry.number,
        entry.by,
        entry.status[:20],
        entry.started_at,
        seconds,
        _cut(entry.code),
        _cut(with_traceback(written, entry.traceback)),
        entry.queries,
        len(pictures_in(entry.displays, MOST_KEPT_CHARS)),
        entry.count,
        markdown,
    )


def _asked(session: str, row: QueryRow) -> AskedLine:
    return AskedLine(session, row.id, _cut(row.prompt), row.model, row.created_at)


def _text(row: contexts.ContextRow, shadowed: bool) -> VariableLine:
    preview = "in code a variable has this name" if shadowed else ""
    return VariableLine(row.name, row.type, row.size, row.line_count, preview, text=True)


def _variable(found: VariableRow) -> VariableLine:
    name, kind = found.name[:_LONGEST_WORD], found.type[:_LONGEST_WORD]
    preview = unstyled(found.preview)[:_LONGEST_WORD]
    return VariableLine(name, kind, found.size, found.line_count, preview, text=False)


def _cut(text: str) -> str:
    """Return the beginning of a text, with control characters escaped."""
    whole = unstyled(text[: 2 * _LONGEST_TEXT])
    if len(whole) <= _LONGEST_TEXT:
        return whole
    return f"{whole[:_LONGEST_TEXT]}\n…[cut here; the export has more]"


def _tail(text: str) -> str:
    whole = unstyled(text[-2 * _LONGEST_LIVE :])
    return whole if len(whole) <= _LONGEST_LIVE else f"…[earlier output]\n{whole[-_LONGEST_LIVE:]}"
