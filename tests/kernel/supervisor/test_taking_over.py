"""Which process takes over from one that has died, where the first cannot; and that none is left which nobody needs.

Processes are played: a real one dies at none of these moments when a test wants it to. What sessions go on from is real
in test_recovery.
"""

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest
from listed_copies import Resumable, Sleeping, book, copy_of, processes_of

from rlm_ipc.errors import WallsMissing
from rlm_ipc.outcomes import Loss, Lost
from rlm_ipc.worker_requests import Restore
from rlm_kernel.supervisor.cells.cell_history import CellHistory
from rlm_kernel.supervisor.cells.request_queue import QueuedOperation, RequestQueue
from rlm_kernel.supervisor.copies.checkpoint_timer import CheckpointTimer
from rlm_kernel.supervisor.copies.checkpoints import Checkpoint, Checkpoints
from rlm_kernel.supervisor.copies.equipment import Equipment
from rlm_kernel.supervisor.copies.kernel_processes import GIVEN_AGAIN, KernelProcesses
from rlm_kernel.supervisor.copies.kernel_requests import KernelRequests
from rlm_kernel.supervisor.copies.recovery import Recovery
from rlm_kernel.supervisor.forks import _copy_of_live
from rlm_kernel.supervisor.processes.worker_link import ForkRefused, PeerDied

pytestmark = pytest.mark.anyio


class Image:
    """Variables that a session was given as the last of so many cells."""

    kept = SimpleNamespace(request=Restore(()))

    def __init__(self, cells: int) -> None:
        self.cells, self.dropped = cells, False

    def file(self) -> int:
        """A file of them."""
        return os.memfd_create("image")

    def drop(self) -> None:
        """Nobody needs them."""
        self.dropped = True


def given(checkpoints: Checkpoints, *images: Image) -> Checkpoints:
    """The session, which was given these variables."""
    checkpoints.images = list(images)  # type: ignore[arg-type]
    return checkpoints


async def copied(*_args: object, **_options: object) -> Any:
    """A copy that goes on when it is asked to."""
    return Resumable()


def recovery_of(checkpoints: Checkpoints, processes: KernelProcesses, queue: RequestQueue) -> Recovery:
    """What lets another process take over, in a session that runs no cell."""
    timer = CheckpointTimer("lazy", processes, checkpoints, queue)
    relay: Any = SimpleNamespace(current=None)
    return Recovery(processes, checkpoints, CellHistory(3), timer, queue, relay, lambda _: None)


def test_variables_that_were_given_and_undone_are_not_given_again() -> None:
    """A process that takes over has what the session had after the rollback."""
    earlier, undone = Image(2), Image(3)
    checkpoints = given(book(3, copy_of(1)), earlier, undone)
    checkpoints.go_back(2)
    assert checkpoints.images == [earlier]
    assert (earlier.dropped, undone.dropped) == (False, True)


@pytest.mark.parametrize("deaths", range(GIVEN_AGAIN + 1))
async def test_variables_are_given_again_until_too_many_processes_have_died_of_them(
    monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """Then the session goes on without them, and nobody is given them any more."""
    led, image, left = [], Image(1), deaths
    checkpoints = given(book(1), image)
    processes = processes_of(checkpoints)

    async def leads(_: KernelProcesses) -> None:
        checkpoints.begin_anew()
        led.append(processes)
        processes.live = Sleeping()  # type: ignore[assignment]

    async def ask(_requests: object, _live: object, _request: object, descriptors: tuple[int, ...] = ()) -> Any:
        nonlocal left
        for descriptor in descriptors:
            os.close(descriptor)
        left -= 1
        if left >= 0:
            raise PeerDied("it has ended")

    monkeypatch.setattr(KernelProcesses, "_newest_leads", leads)
    monkeypatch.setattr(KernelRequests, "ask", ask)
    loss, had = await processes.take_over(in_cell=False), deaths < GIVEN_AGAIN
    assert loss == (Loss() if had else Loss(Lost.EVERYTHING, 1))
    assert (checkpoints.cells, len(led), image.dropped) == (int(had), deaths + 1, not had)


async def test_a_copy_that_dies_when_it_takes_over_ends_and_an_older_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To be let go of, the objects of a text that is gone may run code."""
    died = []

    async def equip(_: Equipment, live: object) -> None:
        died.append(live)
        if len(died) == 1:
            raise PeerDied("it has ended")

    monkeypatch.setattr(KernelProcesses, "fork", copied)
    monkeypatch.setattr(Equipment, "equip", equip)
    older, newest = copy_of(2), copy_of(3)
    checkpoints = book(3, older, newest)
    processes = processes_of(checkpoints)
    assert await processes.take_over(in_cell=False) == Loss(Lost.CELLS, 1)
    assert (checkpoints.cells, checkpoints.copies, processes.live) == (2, [older], died[1])
    assert [copy.peer.dropped for copy in (older, newest)] == [False, True]  # type: ignore[attr-defined]


async def test_a_copy_that_cannot_be_copied_goes_on_itself_and_is_copied_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sleeps no more, and would not be there for the next death."""

    async def refused(*_args: object, **_options: object) -> Any:
        raise ForkRefused("it has no room")

    async def checkpoint(_: KernelProcesses) -> None:
        checkpoints.add(Sleeping(), checkpoints.cells)  # type: ignore[arg-type]

    monkeypatch.setattr(KernelProcesses, "fork", refused)
    monkeypatch.setattr(KernelProcesses, "checkpoint", checkpoint)
    newest = Resumable()
    checkpoints = book(3, Checkpoint(newest, 3))  # type: ignore[arg-type]
    processes = processes_of(checkpoints)
    assert (await recovery_of(checkpoints, processes, RequestQueue("k")).recover()).nothing
    assert processes.live is newest  # type: ignore[comparison-overlap]
    assert checkpoints.covered
    assert [copy.peer is newest for copy in checkpoints.copies] == [False]  # type: ignore[comparison-overlap]


@pytest.mark.parametrize("cells", [0, 1])
async def test_a_process_that_dies_before_its_first_cell_is_replaced_when_it_is_needed(cells: int) -> None:
    """A kernel that cannot live must not be started again for ever."""
    checkpoints, queue = book(cells), RequestQueue("k")
    processes = processes_of(checkpoints)
    processes.live = dead = Sleeping()  # type: ignore[assignment]
    recovery_of(checkpoints, processes, queue).lost(dead)  # type: ignore[arg-type]
    assert queue.idle == (cells == 0)


async def test_a_copy_that_arrives_after_the_end_of_its_session_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else knows of it."""
    late = Sleeping()

    async def fork(*_args: object, **_options: object) -> Any:
        processes.close()
        return late

    monkeypatch.setattr(KernelProcesses, "fork", fork)
    processes = processes_of(book(1))
    processes.live = Sleeping()  # type: ignore[assignment]
    with pytest.raises(asyncio.CancelledError):
        await processes.checkpoint()
    assert late.dropped
    assert processes.links() == []


async def test_a_process_that_cannot_begin_its_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall that the policy requires may not stand around it; the session goes on as it was."""
    late, before = Sleeping(), Sleeping()

    async def fresh() -> Any:
        return late

    async def begun(*_: object) -> Any:
        raise WallsMissing(["landlock (old kernel)"])

    monkeypatch.setattr(KernelProcesses, "_begun", begun)
    processes = processes_of(book(1))
    monkeypatch.setattr(processes, "_fresh_worker", fresh)
    processes.live = before  # type: ignore[assignment]
    with pytest.raises(WallsMissing):
        await processes.renew()
    assert (late.dropped, before.dropped, processes.live) == (True, False, before)


async def test_a_copy_for_a_fork_whose_caller_has_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would ever make a session of it."""
    late, may_arrive = Sleeping(), asyncio.Event()

    async def fork(*_args: object, **_options: object) -> Any:
        await may_arrive.wait()
        return late

    monkeypatch.setattr(KernelProcesses, "fork", fork)
    processes, queue = processes_of(book(1)), RequestQueue("k")
    processes.live = Sleeping()  # type: ignore[assignment]
    parent: Any = SimpleNamespace(processes=processes, queue=queue)
    asking = asyncio.ensure_future(_copy_of_live(parent))
    item = await queue.take()
    assert isinstance(item, QueuedOperation)
    working = asyncio.ensure_future(item.work())
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    may_arrive.set()
    await working
    assert late.dropped
