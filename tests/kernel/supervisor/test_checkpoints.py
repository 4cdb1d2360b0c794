"""The supervisor's list of checkpoints: what each stands for, what can be undone.

No process is needed to ask it; that copies are what the book says is shown by the model in test_rollback_model.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from rlm_ipc import worker_protocol
from rlm_ipc.kernel_reports import AskedQuery
from rlm_ipc.worker_requests import Variables
from rlm_kernel.supervisor import checkpoint_timer
from rlm_kernel.supervisor import checkpoints as checkpoints_module
from rlm_kernel.supervisor.cell_request import CellRequest
from rlm_kernel.supervisor.checkpoint_timer import COPY_EVERY_SECONDS, CheckpointTimer
from rlm_kernel.supervisor.checkpoints import Checkpoint, Checkpoints
from rlm_kernel.supervisor.refusals import Refusals
from rlm_kernel.supervisor.rollback import History, UndoneCell
from rlm_kernel.supervisor.session_policy import SessionPolicy, read_policy
from rlm_kernel.supervisor.worker_link import ForkRefused, PeerDied
from rlm_sandbox.policy import load_policy


def _never(*_: Any) -> Any:
    raise AssertionError("nothing here starts a process")


class Sleeping:
    """Stands where a process would be, which can be let go."""

    dropped = False

    def drop(self) -> None:
        self.dropped = True


def copy_of(cells: int) -> Checkpoint:
    """A copy from after so many cells."""
    return Checkpoint(Sleeping(), cells)  # type: ignore[arg-type]  # the book does not look at the process


def book(
    cells: int,
    *copies: Checkpoint,
    undoable: int = 3,
    pristine: bool = False,
    only_cells: bool = True,
    kind: type[Checkpoints] = Checkpoints,
) -> Checkpoints:
    """The book of a session that has completed so many cells."""
    checkpoints = kind(_never, worker_protocol.Start("{}", "/"), (), _never, _never, _never, Refusals(0, _never))
    checkpoints.cells, checkpoints.copies, checkpoints.undoable = cells, list(copies), undoable
    checkpoints.pristine, checkpoints.only_cells = pristine, only_cells
    return checkpoints


def test_a_new_session_has_no_copy_and_nothing_to_undo() -> None:
    """And is not as a fresh one until it was begun."""
    checkpoints = Checkpoints(_never, worker_protocol.Start("{}", "/"), (), _never, _never, _never, Refusals(0, _never))
    assert (checkpoints.cells, checkpoints.undoable, checkpoints.serial, checkpoints.closed, checkpoints.alive) == (
        0,
        0,
        0,
        False,
        False,
    )
    assert (checkpoints.newest, checkpoints.untouched, checkpoints.covered, checkpoints.fresh) == (
        None,
        False,
        False,
        False,
    )
    assert (checkpoints.can_go_back(), checkpoints.drop_oldest()) == ([], False)


def test_a_session_is_covered_when_its_newest_copy_is_of_its_last_cell() -> None:
    """By cells alone: what else has changed it is in no copy."""
    assert book(3, copy_of(1), copy_of(3)).covered
    assert book(3, copy_of(3)).fresh
    assert not book(3, copy_of(2)).covered
    assert not book(3, copy_of(3), copy_of(2)).covered
    assert not book(3, copy_of(3), only_cells=False).covered
    assert not book(3).covered
    assert book(0, pristine=True).covered
    assert not book(1, pristine=True).covered
    assert not book(0).covered
    assert not book(0, pristine=True).fresh  # there is a copy to be gained


@pytest.mark.parametrize(
    ("checkpoints", "possible"),
    [
        (book(5, copy_of(5)), []),
        (book(5, copy_of(4), copy_of(5)), [1]),
        (book(5, copy_of(1), copy_of(2)), [3]),
        (book(5, copy_of(1), copy_of(2), undoable=4), [3, 4]),
        (book(5, copy_of(2), copy_of(4)), [1, 3]),
        (book(5, copy_of(4), undoable=0), []),
        (book(2, copy_of(2), pristine=True), [2]),
        (book(3, copy_of(3), pristine=True), [3]),
        (book(4, copy_of(4), pristine=True), []),
        (book(2, copy_of(2)), []),
        (book(0, pristine=True), []),
    ],
)
def test_what_can_be_undone_is_what_a_copy_or_a_fresh_start_stands_for(
    checkpoints: Checkpoints, possible: list[int]
) -> None:
    """As many of the last cells as the policy keeps, and not the state as it is."""
    assert checkpoints.can_go_back() == possible


def test_the_oldest_copies_are_given_up_and_the_newest_never() -> None:
    """What is only kept for a rollback goes first when memory is short."""
    copies = [copy_of(1), copy_of(2), copy_of(3)]
    checkpoints = book(3, *copies)
    assert (checkpoints.drop_oldest(), checkpoints.drop_oldest(), checkpoints.drop_oldest()) == (True, True, False)
    assert checkpoints.copies == copies[2:]
    assert [copy.peer.dropped for copy in copies] == [True, True, False]  # type: ignore[attr-defined]
    checkpoints.lost_copy(copies[0].peer)
    assert checkpoints.newest is copies[2]
    checkpoints.lost_copy(copies[2].peer)
    assert checkpoints.newest is None


class Uncopied(Checkpoints):
    """The book of a session whose process cannot be copied now."""

    async def checkpoint(self) -> None:
        raise ForkRefused("it has threads")


class BusySession:
    """A session whose cells follow each other without a pause."""

    closed, idle = False, False

    def __init__(self, checkpoints: Checkpoints, policy: SessionPolicy) -> None:
        self.checkpoints, self.policy = checkpoints, policy

    def operation(self, work: Callable[[], Awaitable[Any]]) -> asyncio.Future[Any]:
        return _never(work)  # type: ignore[no-any-return]


def test_cells_without_a_pause_are_copied_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """And an attempt that failed is not made again before each of them."""
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(checkpoint_timer, "time", clock)
    now = 5000.0
    checkpoints = book(3, copy_of(1), kind=Uncopied)
    lazy = load_policy("default").model_copy(update={"checkpoint": "lazy"})
    timer = CheckpointTimer(BusySession(checkpoints, read_policy(lazy.model_dump_json())))
    assert timer.due()
    asyncio.run(timer.now())
    assert not timer.due()
    now += COPY_EVERY_SECONDS / 2
    assert not timer.due()
    now += COPY_EVERY_SECONDS / 2
    assert timer.due()
    checkpoints.copies.clear()  # without any it is due whenever the last attempt was
    now -= COPY_EVERY_SECONDS
    assert timer.due()


@pytest.mark.anyio
async def test_a_copy_that_is_replaced_ends_after_the_reply_that_its_successor_holds_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then it is one of the session's, so that it ends with the session; and nothing goes back to it."""
    checkpoints, older = book(3, copy_of(1), copy_of(2), undoable=1), [copy_of(1), copy_of(2)]
    checkpoints.copies = list(older)
    made: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    made.set_result(Sleeping())
    monkeypatch.setattr(Checkpoints, "fork", lambda *_args, **_options: made)
    checkpoints.live = Sleeping()  # type: ignore[assignment]
    await checkpoints.checkpoint()
    assert [copy.cells for copy in checkpoints.copies] == [2, 3]
    assert checkpoints.replaced == [older[0].peer]
    assert older[0].peer in checkpoints.processes()
    assert not older[0].peer.dropped  # type: ignore[attr-defined]
    await until(lambda: not checkpoints.replaced)
    assert [copy.peer.dropped for copy in older] == [True, False]  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_a_replaced_copy_ends_with_its_session() -> None:
    """However soon after it was replaced."""
    checkpoints, peer = book(1), Sleeping()
    checkpoints._replace([peer])  # type: ignore[list-item]
    checkpoints.drop_all()
    assert peer.dropped
    assert checkpoints.processes() == []


def cell(number: int) -> UndoneCell:
    return UndoneCell(number, f"n = {number}", [], [])


def test_the_history_forgets_what_was_undone_and_what_comes_before_its_bound() -> None:
    """As many cells as can be undone; none where none can be."""
    history = History(3)
    for number in range(1, 80):
        history._cells.append(cell(number))
    assert history.before == 79 - 3
    assert history.latest(2) == ["n = 79", "n = 78"]
    assert [undone.number for undone in history.undo_after(77)] == [78, 79]
    assert history.latest(1) == ["n = 77"]
    assert history.undo_after(77) == []
    none = History(0)
    none._cells.append(cell(1))
    assert (none.latest(1), none.before > 10**9) == ([], True)


def test_of_a_cell_that_binds_very_many_names_the_first_thousand_are_remembered() -> None:
    """And the first 200 characters of its code: what a session tells of a cell costs no more than that."""
    history = History(1)
    names = [f"n{number}" for number in range(1001)]
    request = CellRequest(worker_protocol.RunCell.TAG, "execute_request", cell=worker_protocol.RunCell("x" * 201))
    request.queries = [AskedQuery(0, "why?", None, "deferred", None, recursive=False)]
    history.note(1, request, names)
    assert history.undo_after(0) == [UndoneCell(1, "x" * 200, names[:1000], ["q_000"])]


@pytest.mark.anyio
async def test_a_rollback_keeps_the_older_copies_and_ends_the_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy from after the cells that were undone is of a session that no longer is."""

    async def leads(*_: Any) -> bool:
        return True

    monkeypatch.setattr(Checkpoints, "_lead_copy", leads)
    copies = [copy_of(1), copy_of(2), copy_of(3)]
    checkpoints, before = book(3, *copies), Sleeping()
    checkpoints.live = before  # type: ignore[assignment]
    await checkpoints.go_back(1)
    assert (checkpoints.cells, checkpoints.copies, checkpoints.newest) == (2, copies[:2], copies[1])
    assert [copy.peer.dropped for copy in copies] == [False, False, True]  # type: ignore[attr-defined]
    assert before.dropped


@pytest.mark.anyio
async def test_a_copy_without_its_threads_is_permitted_a_second_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is forked in a fork of its own; no other copy may make one."""

    async def copied(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(attached={})

    permitted: list[int] = []

    def permit(_source: object, forks: int) -> Any:
        permitted.append(forks)
        return nullcontext()

    monkeypatch.setattr(checkpoints_module, "fork", copied)
    checkpoints, source = book(0), SimpleNamespace(forking=asyncio.Lock(), attached={"log": 1})
    checkpoints.gate = SimpleNamespace(permit=permit)  # type: ignore[assignment]
    for asked in ({}, {"leave_threads": False}, {"leave_threads": True}):
        copy = await checkpoints.fork(source, **asked)  # type: ignore[arg-type]
        assert copy.attached == {"log": 1}
    assert permitted == [1, 1, 2]


@pytest.mark.anyio
async def test_a_request_that_a_limit_ends_tells_which() -> None:
    """So that its caller hears of the time limit, and not of a kernel that has died."""
    died: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    died.set_exception(PeerDied("it has ended"))
    live = SimpleNamespace(expect=lambda _tag: died, send=lambda *_: None, stopped_for=None)
    checkpoints = book(0)
    checkpoints.live = live  # type: ignore[assignment]
    limits: Any = SimpleNamespace(reason="the time limit", end=lambda: None)
    checkpoints.limits = lambda _link: limits
    with pytest.raises(PeerDied):
        await checkpoints.ask(Variables())
    assert live.stopped_for == "the time limit"
