"""The cells of a session by their callers' names, and what a supervisor says of those that an earlier one began."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from rlm_ipc.errors import ProcessError
from rlm_ipc.kernel_reports import CellResult
from rlm_ipc.worker_protocol import CellDone, CellReply, CellStatus
from rlm_kernel.supervisor.cells.cell_request import CellRequest, direct_result
from rlm_kernel.supervisor.keeping.named_runs import ANSWER_LOST, NamedRuns
from rlm_kernel.supervisor.keeping.session_file import FAILED, FailedRun, SessionFile

pytestmark = pytest.mark.anyio


@pytest.fixture
def file() -> Iterator[SessionFile]:
    """The file of a session."""
    with closing(SessionFile.new()) as file:
        yield file


def _future() -> asyncio.Future[CellResult]:
    return asyncio.get_running_loop().create_future()


def _result(status: CellStatus) -> CellResult:
    request = CellRequest.of_caller("1", False, _future())
    request.reply = CellReply(status)
    return direct_result(request, CellDone(), 0.0)


async def test_the_answer_of_a_cell_whose_process_died_is_told_again(file: SessionFile) -> None:
    """Its caller may have lost it with the supervisor. Of another cell nobody knows what came of it."""
    failed = _result(CellStatus.ERROR)
    for name in ("failed", "other"):
        file.note_run(name)
    file.write(FAILED, FailedRun("failed", failed))
    runs = NamedRuns(file)
    told, lost = runs.of("failed"), runs.of("other")
    assert told is not None
    assert lost is not None
    assert await told == failed
    with pytest.raises(ProcessError, match=ANSWER_LOST):
        await lost
    assert runs.of("never") is None


async def test_a_cell_behind_another_begins_only_if_that_one_has_ended_well(file: SessionFile) -> None:
    """Be it while it waits, or long before it came."""
    runs = NamedRuns(file)
    assert runs.condition("") is None
    ends = {
        "well": lambda future: future.set_result(_result(CellStatus.OK)),
        "failed": lambda future: future.set_result(_result(CellStatus.ERROR)),
        "lost": lambda future: future.set_exception(ProcessError(ANSWER_LOST)),
        "waits": lambda _: None,
    }
    futures = {}
    for name in ends:
        futures[name] = _future()
        runs.enter(name, futures[name])
    early = {name: runs.condition(name) for name in ends}
    assert not any(may_begin is not None and may_begin() for may_begin in early.values())
    for name, end in ends.items():
        end(futures[name])
    assert {name: may_begin is not None and may_begin() for name, may_begin in early.items()} == {
        "well": True,
        "failed": False,
        "lost": False,
        "waits": False,
    }
    runs.enter("next", _future())  # what has ended is told by now
    late = {name: runs.condition(name) for name in (*ends, "never")}
    assert [name for name, may_begin in late.items() if may_begin is not None and may_begin()] == ["well"]


async def test_the_latest_cells_that_ended_well_are_known(file: SessionFile) -> None:
    """A batch has a hundred at most, and what came of each takes memory."""
    runs = NamedRuns(file)
    for number in range(257):
        future = _future()
        future.set_result(_result(CellStatus.OK))
        runs.enter(str(number), future)
        runs.told(str(number))
    known = [may_begin() for number in range(257) if (may_begin := runs.condition(str(number))) is not None]
    assert known == [False] + [True] * 256
