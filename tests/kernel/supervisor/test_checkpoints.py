"""The supervisor's list of checkpoints: what each stands for, and what can be undone.

No process is needed to ask it; that copies are what the list says is shown by the model in test_rollback_model.
"""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from listed_copies import Resumable, Sleeping, book, copy_of, processes_of
from waiting import until

from rlm_ipc import worker_protocol
from rlm_ipc.outcomes import Loss, Lost, NoCopy
from rlm_ipc.worker_requests import Bind, Export, Peek, Resolve, Restore, Save, Scan, Shadowed, Unbind, Variables
from rlm_kernel.supervisor.cells.cell_history import CellHistory, UndoneCell
from rlm_kernel.supervisor.cells.cell_request import CellRequest
from rlm_kernel.supervisor.copies import kernel_processes
from rlm_kernel.supervisor.copies.checkpoints import Checkpoint, Checkpoints
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.copies.kernel_requests import KernelRequests
from rlm_kernel.supervisor.processes.worker_link import PeerDied


def test_a_new_session_has_no_copy_and_nothing_to_undo() -> None:
    """And is not as a fresh one until it was begun."""
    checkpoints = Checkpoints(3)
    assert (checkpoints.cells, processes_of(checkpoints).alive) == (0, False)
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
    checkpoints.remove(copies[0].peer)
    assert checkpoints.newest is copies[2]
    checkpoints.remove(copies[2].peer)
    assert checkpoints.newest is None


def test_a_copy_ends_what_kept_one_from_being_taken() -> None:
    """What has changed the session since then is no cell that could not be copied."""
    checkpoints = book(3)
    checkpoints.refused(NoCopy.REFUSED, "it has no room")
    checkpoints.add(Sleeping(), 3)  # type: ignore[arg-type]
    checkpoints.changed()
    assert (checkpoints.covered, checkpoints.uncopied) == (False, None)


def test_of_a_copy_that_goes_on_the_missing_threads_are_told_once() -> None:
    """The session is that of the copy then, whatever had changed the process before it."""
    copy = Checkpoint(Sleeping(), 2, ("Thread-1",))  # type: ignore[arg-type]
    checkpoints = book(5, copy, only_cells=False)
    checkpoints.refused(NoCopy.THREAD_RUNS, "Thread-1")
    assert checkpoints.resumed(copy) == ("Thread-1",)
    assert (checkpoints.cells, checkpoints.covered, checkpoints.uncopied) == (2, True, None)
    checkpoints.changed()
    assert (checkpoints.uncopied, checkpoints.resumed(copy)) == (None, ())


def test_a_session_goes_back_to_a_copy_or_to_the_beginning() -> None:
    """Its copies from after that end; those from before stay."""
    copies = [copy_of(1), copy_of(2), copy_of(3)]
    checkpoints = book(3, *copies)
    checkpoints.go_back(2)
    assert (checkpoints.cells, checkpoints.copies) == (2, copies[:2])
    assert [copy.peer.dropped for copy in copies] == [False, False, True]  # type: ignore[attr-defined]
    checkpoints.refused(NoCopy.REFUSED, "it has no room")
    checkpoints.begin_anew()
    assert (checkpoints.cells, checkpoints.copies, checkpoints.uncopied, checkpoints.covered) == (0, [], None, False)


REQUESTS = [
    (Bind("log", {}, "log", {}), True, True),
    (Unbind("log"), True, True),
    (Shadowed(), True, True),
    (Resolve({}), True, True),
    (Variables(), True, True),
    (Peek("rows", 0, 10, 1000, every=False), True, False),
    (Scan("rows", "x", 0, 10, 1.0, 100), True, False),
    (Export("rows", 10), True, False),
    (Save(None, 0, 10), False, False),
    (Save(None, 10, 10), False, True),
    (Restore(()), False, False),
]
"""Each request of the supervisor's own; whether a fresh process that is equipped stands for a session afterwards, and
whether a copy from before it does."""


@pytest.mark.parametrize(("request_", "as_fresh", "as_copy"), REQUESTS, ids=repr)
def test_a_request_that_may_run_code_makes_every_copy_old(request_: Any, as_fresh: bool, as_copy: bool) -> None:
    """To look at a variable runs its `__str__`, which changes the session as no cell says; to bind a text does not."""
    checkpoints = book(3, copy_of(3), pristine=True)
    checkpoints.asked(request_)
    assert (checkpoints.pristine, checkpoints.covered, checkpoints.fresh) == (as_fresh, as_copy, as_copy)
    checkpoints.asked(Variables())
    assert checkpoints.covered == as_copy, "a request that changes nothing makes no copy new"
    checkpoints.add(Sleeping(), 3)  # type: ignore[arg-type]
    assert checkpoints.covered


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
@pytest.mark.parametrize("pristine", [False, True])
def test_of_the_older_copies_just_those_are_kept_that_undo_cells(kept: int, pristine: bool) -> None:
    """So many cells as the policy says, not one less; a fresh process stands for the time before the first."""
    checkpoints = Checkpoints(kept)
    checkpoints.pristine = pristine
    for number in range(6):
        checkpoints.cells = number
        replaced = checkpoints.add(Sleeping(), number)  # type: ignore[arg-type]
        first = max(0, number - kept)
        known = range(max(first, 1 if pristine and number else 0), number + 1)
        assert [copy.cells for copy in checkpoints.copies] == list(known)
        assert checkpoints.can_go_back() == [undone for undone in range(1, kept + 1) if undone <= number]
        assert all(peer not in [copy.peer for copy in checkpoints.copies] for peer in replaced)


@pytest.mark.anyio
async def test_a_copy_that_is_replaced_ends_after_the_reply_that_its_successor_holds_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until then it is one of the session's, so that it ends with the session; and nothing goes back to it."""
    older = [copy_of(1), copy_of(2)]
    checkpoints = book(3, *older, undoable=1)
    processes = processes_of(checkpoints)

    async def copied(*_args: object, **_options: object) -> Any:
        return Sleeping()

    monkeypatch.setattr(KernelProcesses, "fork", copied)
    processes.live = Sleeping()  # type: ignore[assignment]
    await processes.checkpoint()
    assert [copy.cells for copy in checkpoints.copies] == [2, 3]
    assert older[0].peer in processes.links()
    assert not older[0].peer.dropped  # type: ignore[attr-defined]
    await until(lambda: older[0].peer not in processes.links())
    assert [copy.peer.dropped for copy in older] == [True, False]  # type: ignore[attr-defined]


@pytest.mark.anyio
async def test_a_replaced_copy_ends_with_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon after it was replaced."""
    older = copy_of(1)
    processes = processes_of(book(2, older, undoable=0))

    async def copied(*_args: object, **_options: object) -> Any:
        return Sleeping()

    monkeypatch.setattr(KernelProcesses, "fork", copied)
    processes.live = Sleeping()  # type: ignore[assignment]
    await processes.checkpoint()
    assert not older.peer.dropped  # type: ignore[attr-defined]
    processes.drop_all()
    assert older.peer.dropped  # type: ignore[attr-defined]
    assert processes.links() == []


def cell(number: int) -> UndoneCell:
    return UndoneCell(number, f"n = {number}", (), ())


def test_the_history_forgets_what_was_undone_and_what_comes_before_its_bound() -> None:
    """As many cells as can be undone; none where none can be."""
    history = CellHistory(3)
    for number in range(1, 80):
        history._cells.append(cell(number))
    assert history.before == 79 - 3
    assert history.latest(2) == ["n = 79", "n = 78"]
    assert [undone.number for undone in history.undo_after(77)] == [78, 79]
    assert history.latest(1) == ["n = 77"]
    assert history.undo_after(77) == []
    none = CellHistory(0)
    none._cells.append(cell(1))
    assert (none.latest(1), none.before > 10**9) == ([], True)


def test_of_a_cell_that_binds_very_many_names_the_first_thousand_are_remembered() -> None:
    """And the first 200 characters of its code: what a session tells of a cell costs no more than that."""
    history = CellHistory(1)
    names = [f"n{number}" for number in range(1001)]
    request = CellRequest(worker_protocol.RunCell.TAG, "execute_request", cell=worker_protocol.RunCell("x" * 201))
    request.queries = ["q_000"]
    history.note(1, request, names)
    assert history.undo_after(0) == [UndoneCell(1, "x" * 200, tuple(names[:1000]), ("q_000",))]


@pytest.mark.anyio
async def test_a_rollback_keeps_the_older_copies_and_ends_the_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy from after the cells that were undone is of a session that no longer is."""

    async def leads(*_: Any) -> bool:
        return True

    monkeypatch.setattr(KernelProcesses, "_lead_copy", leads)
    copies = [copy_of(1), copy_of(2), copy_of(3)]
    checkpoints, before = book(3, *copies), Sleeping()
    processes = processes_of(checkpoints)
    processes.live = before  # type: ignore[assignment]
    await processes.go_back(1)
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

    monkeypatch.setattr(kernel_processes, "fork", copied)
    processes, source = processes_of(book(0)), SimpleNamespace(forking=asyncio.Lock(), attached={"log": 1})
    processes.gate = SimpleNamespace(permit=permit)  # type: ignore[assignment]
    for asked in ({}, {"leave_threads": False}, {"leave_threads": True}):
        copy = await processes.fork(source, **asked)  # type: ignore[arg-type]
        assert copy.attached == {"log": 1}
    assert permitted == [1, 1, 2]


@pytest.mark.anyio
async def test_a_request_that_a_limit_ends_tells_which() -> None:
    """So that its caller hears of the time limit, and not of a kernel that has died."""
    died: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    died.set_exception(PeerDied("it has ended"))
    live: Any = SimpleNamespace(expect=lambda _tag: died, send=lambda *_: None, stopped_for=None)
    clock: Any = SimpleNamespace(reason="the time limit", end=lambda: None)
    checkpoints = book(3, copy_of(3))
    with pytest.raises(PeerDied):
        await KernelRequests(checkpoints, lambda _link: clock).ask(live, Export("rows", 10))
    assert live.stopped_for == "the time limit"
    assert not checkpoints.covered, "what it has changed before it died is in no copy"


@pytest.mark.anyio
async def test_a_session_that_went_on_from_its_newest_copy_is_covered_by_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever had changed the process that has died: the copy sleeps on, and another crash finds it again."""

    async def copied(*_args: object, **_options: object) -> Any:
        return Resumable()

    monkeypatch.setattr(KernelProcesses, "fork", copied)
    checkpoints = book(3, copy_of(2), copy_of(3), only_cells=False)
    processes = processes_of(checkpoints)
    assert await processes.take_over(in_cell=False) == Loss(Lost.NOTHING, 0, False)
    assert (checkpoints.covered, checkpoints.cells, len(checkpoints.copies)) == (True, 3, 2)
    checkpoints.cells = 5
    assert await processes.take_over(in_cell=True) == Loss(Lost.CELLS, 2, True)
    assert (checkpoints.covered, checkpoints.cells) == (True, 3)
