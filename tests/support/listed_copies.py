"""Sessions whose list of copies is real, and whose processes are not."""

import asyncio
from typing import Any

from rlm_ipc import worker_protocol
from rlm_kernel.supervisor.copies.checkpoints import Checkpoint, Checkpoints
from rlm_kernel.supervisor.copies.equipment import Equipment
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.copies.kernel_requests import KernelRequests
from rlm_kernel.supervisor.processes.refusals import Refusals
from rlm_kernel.supervisor.processes.session_walls import SessionWalls


def _never(*_: Any) -> Any:
    raise AssertionError("nothing here starts a process")


class Sleeping:
    """Stands where a process would be, which can be let go."""

    dropped, pid = False, None
    handshake = worker_protocol.Handshake()

    def drop(self) -> None:
        """It ends."""
        self.dropped = True

    def report_to(self, owner: object) -> None:
        """Nothing is heard of it."""


class Resumable(Sleeping):
    """Stands where a sleeping process would be, which goes on when it is asked to."""

    def __init__(self) -> None:
        self.attached: dict[str, int] = {}

    def expect(self, _tag: bytes) -> asyncio.Future[Any]:
        """Its answer is there at once."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.set_result(None)
        return answer

    def say(self, _message: object) -> None:
        """It hears everything."""

    def serve(self) -> None:
        """It accepts everything."""


def copy_of(cells: int) -> Checkpoint:
    """A copy from after so many cells."""
    return Checkpoint(Sleeping(), cells)  # type: ignore[arg-type]  # the book does not look at the process


def book(
    cells: int, *copies: Checkpoint, undoable: int = 3, pristine: bool = False, only_cells: bool = True
) -> Checkpoints:
    """The list of a session that has completed so many cells."""
    checkpoints = Checkpoints(undoable)
    checkpoints.cells, checkpoints.copies = cells, list(copies)
    checkpoints.pristine, checkpoints.only_cells = pristine, only_cells
    return checkpoints


def processes_of(checkpoints: Checkpoints) -> KernelProcesses:
    """The processes of that session; none of them is a real one."""
    requests = KernelRequests(checkpoints, _never)
    equipment = Equipment(requests, {})
    start = worker_protocol.Start("{}", "/")
    owner: Any = None  # no process of these tests says anything
    return KernelProcesses(
        _never, start, SessionWalls(()), checkpoints, equipment, requests, Refusals(0, _never), owner
    )
