"""When a copy is taken: in the session's idle time, once more if it is left alone, and never when nobody wants one.

No process is needed to ask it. That a session goes on from what is taken then is shown in test_recovery.
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from rlm_ipc import worker_protocol
from rlm_ipc.outcomes import NoCopy, Uncopied
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.cells.request_queue import QueuedOperation, RequestQueue
from rlm_kernel.supervisor.copies import checkpoint_timer
from rlm_kernel.supervisor.copies.checkpoint_timer import TRY_AGAIN_SECONDS, CheckpointTimer
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.processes.worker_link import ForkRefused

pytestmark = pytest.mark.anyio

SECONDS = 60.0
RUNS = ForkRefused("a thread runs", ["Thread-1"], why=NoCopy.THREAD_RUNS)
NO_ROOM = ForkRefused("it has no room")


class Sleeping:
    """Stands where a sleeping process would be."""

    handshake = worker_protocol.Handshake()

    def drop(self) -> None:
        """It ends."""


class Session:
    """A timer of a session that has completed three cells, and the processes that it has copied."""

    def __init__(self, mode: str, copied_cells: int | None = None) -> None:
        self.copies, self.prefaulted = 0, 0
        self.refuses: Exception | None = None
        self.checkpoints, self.queue = Checkpoints(1), RequestQueue("k")
        if copied_cells is not None:
            self.checkpoints.add(Sleeping(), copied_cells)  # type: ignore[arg-type]  # the book does not look at it
        self.checkpoints.cells = 3
        self.timer = CheckpointTimer(mode, self, self.checkpoints, self.queue)

    async def checkpoint(self) -> None:
        """Take a copy, or refuse to."""
        await self.demand_still()
        self.copies += 1
        self.checkpoints.add(Sleeping(), self.checkpoints.cells)  # type: ignore[arg-type]

    async def demand_still(self) -> bool:
        """Find a thread in the way, or none."""
        if self.refuses is not None:
            raise self.refuses
        return True

    def prefault(self) -> None:
        """Make pages ready."""
        self.prefaulted += 1

    async def work(self) -> None:
        """Do what comes next in the queue."""
        item = await asyncio.wait_for(self.queue.take(), SECONDS)
        assert isinstance(item, QueuedOperation)
        await item.work()
        self.queue.taken = None

    @property
    def planned(self) -> asyncio.TimerHandle | None:
        """What the timer waits for."""
        handle = self.timer._timer
        return None if handle is None or handle.cancelled() else handle


@pytest.mark.parametrize("mode", ["lazy", "strict"])
async def test_an_idle_session_is_copied_and_made_ready(mode: str) -> None:
    """The next cell pays for neither."""
    session = Session(mode)
    session.timer.later()
    await session.work()
    assert (session.copies, session.prefaulted, session.checkpoints.fresh) == (1, 1, True)


async def test_a_session_that_has_its_copy_is_only_made_ready() -> None:
    """Another one of the same state would gain nothing."""
    session = Session("lazy", copied_cells=3)
    session.timer.later()
    await session.work()
    assert (session.copies, session.prefaulted) == (0, 1)


@pytest.mark.parametrize(("mode", "closed"), [("off", False), ("lazy", True), ("strict", True)])
async def test_nothing_is_planned_without_copies_and_for_a_session_that_ends(mode: str, closed: bool) -> None:
    """Its processes are gone before the plan."""
    session = Session(mode)
    session.queue.closed = closed
    session.timer.later()
    assert session.planned is None


async def test_what_is_planned_is_given_up_for_a_later_plan_and_when_it_is_cancelled() -> None:
    """A cell that begins takes the time in which the copy was to be taken."""
    session = Session("lazy")
    session.timer.cancel()
    session.timer.later()
    first = session.planned
    assert first is not None
    session.timer.later()
    assert first.cancelled()
    assert session.planned is not None
    session.timer.cancel()
    assert session.planned is None


async def test_a_session_that_was_refused_is_left_in_peace_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was in the way will be there for a while."""
    monkeypatch.setattr(checkpoint_timer, "IDLE_AFTER_REFUSAL_SECONDS", 1000.0)
    session = Session("lazy")
    now = asyncio.get_running_loop().time()
    session.timer.later()
    assert session.planned is not None
    assert session.planned.when() < now + SECONDS
    session.checkpoints.refused(NoCopy.THREAD_RUNS, "Thread-1")
    session.timer.later()
    assert session.planned is not None
    assert session.planned.when() >= now + 1000
    session.timer.cancel()


async def test_a_session_at_work_is_not_copied() -> None:
    """A cell runs: the copy is taken after it."""
    session = Session("lazy", copied_cells=3)
    session.queue.taken = CellRequest(worker_protocol.RunCell.TAG, "execute_request")
    session.timer._if_idle()
    session.timer._share_if_idle()
    session.queue.taken = None
    assert session.queue.rests
    assert session.planned is None


async def test_a_session_that_is_left_alone_is_copied_once_more() -> None:
    """It and its copy share every page then. Nothing more is planned."""
    session = Session("lazy")
    session.timer.later()
    await session.work()
    assert session.planned is not None
    assert session.planned.when() > asyncio.get_running_loop().time()
    session.timer.cancel()
    session.timer._share_if_idle()
    await session.work()
    assert (session.copies, session.prefaulted, session.planned) == (2, 1, None)


async def test_a_session_without_a_copy_has_nothing_to_share() -> None:
    """One more process would only take memory."""
    session = Session("lazy")
    session.timer._share_if_idle()
    assert session.queue.rests


@pytest.mark.parametrize(("refused", "again"), [(RUNS, True), (NO_ROOM, False)])
async def test_a_session_whose_thread_ran_is_looked_at_again(refused: ForkRefused, again: bool) -> None:
    """A thread ends some day; what else is in the way is asked for by the next cell."""
    session = Session("lazy")
    session.refuses = refused
    await session.timer.now()
    session.timer._share_if_idle()
    assert (session.planned is not None) is again
    session.timer.cancel()
    session.refuses = None
    await session.work()
    assert (session.copies, session.checkpoints.uncopied) == (1, None)


@pytest.mark.parametrize("mode", ["lazy", "strict"])
async def test_an_overdue_copy_is_taken_before_the_next_cell(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Under ``strict`` the one before it has died. An attempt that failed is made again once a second."""
    monkeypatch.setattr(checkpoint_timer, "time", SimpleNamespace(monotonic=lambda: now))
    now = 5000.0
    session = Session(mode, copied_cells=1)
    session.refuses = NO_ROOM
    assert session.timer.due()
    await session.timer.now()
    assert session.checkpoints.uncopied == Uncopied(2, NoCopy.REFUSED, "it has no room")
    assert not session.timer.due()
    now += TRY_AGAIN_SECONDS / 2
    assert not session.timer.due()
    now += TRY_AGAIN_SECONDS / 2
    assert session.timer.due()
    now -= TRY_AGAIN_SECONDS
    session.checkpoints.possible()
    assert session.timer.due()
    session.refuses = None
    await session.timer.now()
    assert not session.timer.due()


async def test_no_cell_waits_for_a_copy_where_there_are_none() -> None:
    """``off`` promises none."""
    assert not Session("off").timer.due()


def _time_out(session: Session) -> None:
    session.refuses = TimeoutError()


def _have_a_thread(session: Session) -> None:
    session.refuses = RUNS


@pytest.mark.parametrize(
    ("happens", "told"),
    [(_time_out, Uncopied(3, NoCopy.NO_ANSWER, "")), (_have_a_thread, Uncopied(3, NoCopy.THREAD_RUNS, "Thread-1"))],
)
async def test_a_failed_attempt_says_why(happens: Callable[[Session], None], told: Uncopied) -> None:
    """The answer to the cell has it."""
    session = Session("lazy")
    happens(session)
    await session.timer.now()
    assert session.checkpoints.uncopied == told


async def test_a_look_tells_whether_a_copy_could_be_taken_and_takes_none() -> None:
    """A reply of ``lazy`` says what is in the way, and forgets it once it has gone."""
    session = Session("lazy")
    session.refuses = RUNS
    await session.timer.look()
    assert session.checkpoints.uncopied == Uncopied(3, NoCopy.THREAD_RUNS, "Thread-1")
    session.refuses = None
    await session.timer.look()
    assert (session.checkpoints.uncopied, session.copies) == (None, 0)


@pytest.mark.parametrize(
    ("mode", "copied_cells", "copies"),
    [("off", None, 0), ("lazy", None, 1), ("lazy", 3, 0), ("lazy", 2, 1), ("strict", None, 1)],
)
async def test_what_is_covered_is_not_copied_again(mode: str, copied_cells: int | None, copies: int) -> None:
    """After a crash, the session goes on from a copy that sleeps on."""
    session = Session(mode, copied_cells)
    await session.timer.cover()
    assert session.copies == copies


@pytest.mark.parametrize(("mode", "at_once", "planned"), [("off", 0, False), ("lazy", 0, True), ("strict", 1, True)])
async def test_a_fork_is_secured_at_once_or_soon(mode: str, at_once: int, planned: bool) -> None:
    """Under ``strict`` a crash loses nothing of it, under ``lazy`` nothing once it was idle."""
    session = Session(mode)
    await session.timer.secure()
    assert (session.copies, session.planned is not None) == (at_once, planned)
    session.timer.cancel()
