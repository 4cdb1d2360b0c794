"""Who stands by for whom: each death of such a process, too, is made good before anybody needs it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from session_processes import end_process, kill_with_keeper, runs, standby_of, zygote_of
from waiting import until, wait_until

from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor.keeping.keeping import VAIN_STANDBYS
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import Policy, load_policy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pid(own_supervisor: SupervisorClient, policy: Callable[..., Policy], tmp_path: Path) -> int:
    """A supervisor that has a session without checkpoints, in which x is 1."""
    await own_supervisor.spawn(SpawnRequest("k1", str(tmp_path)), policy(checkpoint="off"))
    await own_supervisor.execute("k1", "x = 1").result()
    assert own_supervisor.pid is not None
    return own_supervisor.pid


def another_standby(supervisor: int, before: psutil.Process) -> psutil.Process:
    """Wait for the process that stands by in place of one that has ended."""
    found = wait_until(partial(standby_of, supervisor), lambda found: found not in (None, before))
    assert found is not None
    return found


async def test_another_process_stands_by_when_the_one_that_did_has_died(
    own_supervisor: SupervisorClient, pid: int
) -> None:
    """Again and again, and it is the next supervisor, even if its time comes before it has imported everything."""
    standby = standby_of(pid)
    assert standby is not None
    for _ in range(VAIN_STANDBYS + 1):
        end_process(standby.pid)
        standby = another_standby(pid, standby)
        wait_until(partial(sleeps, standby))
    end_process(standby.pid)
    standby = another_standby(pid, standby)
    # The supervisor answers only after it has named the new process to the keeper.
    await own_supervisor.execute("k1", "x").result()
    end_process(pid)
    assert (await own_supervisor.execute("k1", "x").result()).result == "1"
    assert own_supervisor.pid == standby.pid


def sleeps(process: psutil.Process) -> bool:
    """Whether a process waits with everything imported: it holds its line, and has read no file for it since."""
    return process.status() == psutil.STATUS_SLEEPING and "zmq" in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.parametrize("with_supervisor", [False, True])
async def test_the_heir_of_a_zygote_takes_its_place(
    own_supervisor: SupervisorClient, pid: int, *, with_supervisor: bool
) -> None:
    """Nothing is imported anew: sessions start from a process that was there already. It has an heir as well."""
    for number in range(2):
        zygote = zygote_of(own_supervisor.pid)
        assert zygote is not None
        heir = await until(partial(zygote_of, own_supervisor.pid, zygote))
        if with_supervisor:
            end_process(own_supervisor.pid)
        end_process(zygote.pid)
        await own_supervisor.spawn(SpawnRequest(f"other {number}"), load_policy("default"))
        assert (await own_supervisor.execute(f"other {number}", "1 + 1").result()).result == "2"
        assert zygote_of(own_supervisor.pid) == heir


async def test_the_zygote_starts_before_the_supervisor_has_imported_its_modules(
    real_starts: None, isolation: object
) -> None:
    """A first call waits for it longest. The process that stands by is forked as soon as everything is imported."""
    client = await SupervisorClient.connect()
    assert client.pid is not None
    zygote = await until(partial(zygote_of, client.pid))
    standby = await until(partial(_standby_of, client.pid))
    assert zygote.create_time() < standby.create_time()
    kill_with_keeper(client.pid)
    await until(lambda: not runs(zygote))
    client.close()


def _standby_of(supervisor: int) -> psutil.Process | None:
    children = psutil.Process(supervisor).children()
    return next((child for child in children if "rlm_kernel.supervisor" in child.cmdline()), None)


@pytest.mark.parametrize("moment", ["at once", "while it imports"])
async def test_a_zygote_that_starts_ends_with_its_supervisor(
    real_starts: None, isolation: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: str
) -> None:
    """It does not look at its lifeline while it imports; here that never ends."""
    begun = tmp_path / "begun"
    (tmp_path / "IPython").mkdir()
    code = f"import pathlib, signal\npathlib.Path({str(begun)!r}).touch()\nsignal.pause()\n"
    (tmp_path / "IPython" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    client = await SupervisorClient.connect()
    assert client.pid is not None
    zygote = await until(partial(zygote_of, client.pid))
    if moment == "while it imports":
        await until(begun.exists)
    kill_with_keeper(client.pid)
    await until(lambda: not runs(zygote))
    client.close()
