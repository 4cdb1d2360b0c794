"""Zygotes, and the processes that are forked from them before a session needs one."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from played_worker import kept_by_a_test
from waiting import until

from rlm_ipc.framed_stream import Unfinished
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.processes import zygotes
from rlm_kernel.supervisor.processes.worker_link import MOST_UNFINISHED
from rlm_kernel.supervisor.processes.zygotes import Zygotes

pytestmark = pytest.mark.anyio


@pytest.fixture
def kept() -> Iterator[Keeping]:
    """What a keeper would hold of them."""
    with kept_by_a_test() as keeping:
        yield keeping


def any_runs(pids: set[int | None]) -> bool:
    """Whether one of the processes is there."""
    return any(psutil.pid_exists(pid) for pid in pids if pid is not None)


# A zygote is left to its link, which reaps it; the supervisor's process shows no such warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_process_that_was_made_ahead_ends_when_no_session_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Keeping
) -> None:
    """Sessions start all the same, and the first to start has another one made."""
    made = Zygotes(tmp_path, tmp_path / "log", kept, Unfinished(MOST_UNFINISHED))
    monkeypatch.setattr(zygotes, "UNUSED_SECONDS", 0.5)
    made.start()
    three = await until(made.pids, lambda found: len(found) == 3)
    rest = await until(made.pids, lambda found: len(found) == 2)  # the zygote and its heir
    await until(lambda: not any_runs(three - rest))
    monkeypatch.setattr(zygotes, "UNUSED_SECONDS", 60.0)
    first = await made.fresh_worker((), usual=True, private=False)
    ahead = (await until(made.pids, lambda found: len(found) == 3)) - rest
    second = await made.fresh_worker((), usual=True, private=False)
    assert {second.pid} == ahead
    third = (await until(made.pids, lambda found: len(found) == 3)) - rest
    for worker in (first, second):
        worker.drop()
    made.close()
    await until(lambda: not any_runs({*rest, *third, first.pid, second.pid}))
