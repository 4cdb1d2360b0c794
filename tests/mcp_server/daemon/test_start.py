"""The supervisor starts while the daemon still imports its modules."""

import pytest

from rlm_ipc import discovery
from rlm_mcp.daemon.__main__ import DEFAULT_SERVER, _supervisor_beside

pytestmark = pytest.mark.usefixtures("ended")


@pytest.mark.parametrize(("server", "started"), [(DEFAULT_SERVER, True), ("other:create", False)])
def test_a_daemon_starts_the_supervisor_that_its_own_server_will_need(server: str, started: bool) -> None:
    """Whoever leaves the block holds nobody up: the start is over."""
    with _supervisor_beside(server):
        pass
    line = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    assert (line is not None) == started
    if line is not None:
        line.close()


def test_a_supervisor_that_cannot_start_does_not_keep_the_daemon_from_serving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call that needs it says why."""
    monkeypatch.setenv("RLM_KERNEL_STATE_DIR", "/proc/nowhere")
    with _supervisor_beside(DEFAULT_SERVER):
        pass
    assert discovery.connect(discovery.runtime_dir() / "supervisor.sock") is None
