"""Sessions that come back with their saved variables, while what they come back in dies."""

import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psutil
import pytest
from command_line import cli
from serving import kill_daemon, the_supervisor
from session_processes import end_process, keeper_of, kill_with_keeper, runs
from waiting import wait_until

from rlm_client.client import call_tool
from rlm_ipc import discovery
from rlm_ipc.errors import ToolFailed

pytestmark = pytest.mark.usefixtures("shared_processes")
MANY = "kept = list(range(4_000_000))"
LARGE = 100 << 20
"""What only a kernel takes that has begun to read these."""


@pytest.fixture
def saved(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A session that has been saved and has no kernel now; under a mode of checkpoints."""
    mode = getattr(request, "param", "lazy")
    folder = discovery.config_dir() / "policies"
    folder.mkdir(parents=True, exist_ok=True)
    name, policy = f"s-{uuid.uuid4().hex}", f"back-{mode}"
    (folder / f"{policy}.yaml").write_text(f"extends: default\ncheckpoint: {mode}\nreopen: true\n")
    monkeypatch.setenv("RLM_KERNEL_POLICY", policy)
    assert call_tool("eval_code", {"code": MANY}, session=name)["success"]
    cli("save", name)
    kernel = psutil.Process(call_tool("status", {}, session=name)["kernel"]["pid"])
    kill_with_keeper(the_supervisor())
    wait_until(lambda: not runs(kernel))
    assert _use(name)["error"] == "kernel_died", "the daemon learns of it by a call"
    return name


def _kill_filled_kernels(using: Future[dict[str, Any]], times: int) -> None:
    """Kill the kernel that is being given the variables, so many times, while the session is ``using`` them."""
    keeper = wait_until(_keeper)
    assert keeper is not None
    while times and not using.done():
        for process in keeper.children():
            with suppress(psutil.Error):
                if times and process.memory_info().rss > LARGE:
                    end_process(process.pid)
                    times -= 1


def _keeper() -> psutil.Process | None:
    with suppress(psutil.Error, LookupError, AssertionError):
        return keeper_of(the_supervisor())
    return None


def _use(session: str) -> dict[str, Any]:
    try:
        return call_tool("eval_code", {"code": "len(kept)"}, session=session)
    except ToolFailed as error:
        return error.answer


def _use_while_killed(session: str, times: int) -> dict[str, Any]:
    """Use a session of which so many kernels are killed meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        used = pool.submit(_use, session)
        _kill_filled_kernels(used, times)
        return used.result()


@pytest.mark.parametrize("saved", ["off", "lazy", "strict"], indirect=True)
def test_a_kernel_that_dies_while_it_comes_back_is_replaced_by_one_that_comes_back(saved: str) -> None:
    """Nobody who uses the session notices."""
    answer = _use_while_killed(saved, 1)
    assert answer["result"] == "4000000", answer
    assert answer["notice"].startswith("variables are as they were saved at "), answer


def test_what_no_kernel_has_lived_to_get_stays_saved_over_a_new_daemon(saved: str) -> None:
    """The call says so, and the next one tries again, even if it comes to another daemon that finds an empty kernel."""
    answer = _use_while_killed(saved, 3)
    assert answer["error"] == "kernel_died", answer
    assert "the variables stay saved" in answer["message"], answer
    kill_daemon()
    answer = _use(saved)
    assert answer["result"] == "4000000", answer
    assert answer["notice"].startswith("variables are as they were saved at "), answer


def test_a_restart_begins_without_what_was_saved_for_every_later_kernel(saved: str) -> None:
    """Who restarts a session wants none of it, also not when the kernel ends before anything has run."""
    call_tool("restart_session", {}, session=saved)
    kill_with_keeper(the_supervisor())
    assert _use(saved)["error"] == "kernel_died"
    answer = _use(saved)
    assert "NameError" in answer["error"], answer


def test_an_answer_does_not_call_lost_what_comes_back(saved: str) -> None:
    """The call that finds the kernel gone says that variables go back; the next one says to when."""
    assert _use(saved)["result"] == "4000000"
    kill_with_keeper(the_supervisor())
    told = _use(saved)
    assert (told["error"], "lost" in str(told)) == ("kernel_died", False)
    assert "variables return to their last saved values" in told["message"]
    assert "as they were saved at" in _use(saved)["notice"]
