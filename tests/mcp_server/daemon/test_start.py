"""What a daemon does before it imports the rest of its modules: it claims its places, and starts the supervisor."""

from functools import partial

import pytest
from waiting import wait_until

from rlm_ipc import discovery
from rlm_mcp.daemon.__main__ import DEFAULT_SERVER, _claimed_state, _supervisor_beside

pytestmark = pytest.mark.usefixtures("ended")


@pytest.mark.parametrize(("server", "started"), [(DEFAULT_SERVER, True), ("other:create", False)])
def test_a_daemon_starts_the_supervisor_that_its_own_server_will_need(server: str, started: bool) -> None:
    """Whoever leaves the block holds nobody up: the start is over."""
    with _supervisor_beside(server):
        pass
    path = discovery.runtime_dir() / "supervisor.sock"
    line = wait_until(lambda: discovery.connect(path), lambda line: line is not None) if started else None
    if line is None:
        assert discovery.connect(path) is None
    else:
        line.close()


def test_a_supervisor_that_cannot_start_does_not_keep_the_daemon_from_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call that needs it says why."""
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", "/proc/nowhere")
    with _supervisor_beside(DEFAULT_SERVER):
        pass
    assert discovery.connect(discovery.runtime_dir() / "supervisor.sock") is None


def test_two_daemons_do_not_work_on_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two folders of sockets they would not meet, and each would end sessions of the other."""
    monkeypatch.setattr(discovery, "claim", partial(discovery.claim, seconds=0.0))
    with _claimed_state(DEFAULT_SERVER):
        with pytest.raises(discovery.DiscoveryError, match=r"another daemon works on .*; set RLM_KERNEL_RUNTIME_DIR"):
            _claimed_state(DEFAULT_SERVER)
        with _claimed_state("other:create"):
            pass
    with _claimed_state(DEFAULT_SERVER):
        pass
