"""Which walls a session's process reports, and which its policy requires."""

import pytest

from rlm_ipc.errors import KernelDied, WallsMissing
from rlm_ipc.kernel_reports import WallState
from rlm_ipc.worker_protocol import Started
from rlm_kernel.supervisor.processes.session_walls import SessionWalls

UP, DOWN = WallState(True, "it stands"), WallState(False, "the system has none")


def test_a_required_wall_that_does_not_stand_is_named_with_the_reason() -> None:
    """And so is one of which the process said nothing."""
    walls = SessionWalls(("language", "landlock", "seccomp"))
    walls.believe(Started({"language": UP, "landlock": DOWN}))
    with pytest.raises(WallsMissing) as raised:
        walls.demand()
    assert raised.value.missing == ("landlock (the system has none)", "seccomp (nothing raised it)")
    walls.believe(Started(dict.fromkeys(("language", "landlock", "seccomp"), UP)))
    walls.demand()


def test_the_supervisor_is_a_wall_that_no_process_reports() -> None:
    """A fork does not inherit it, and no process can say that there is another."""
    walls = SessionWalls(("monitor",))
    walls.believe(Started({"language": UP, "monitor": DOWN, "invented": UP}))
    walls.demand()
    assert set(walls.states) == {"language", "monitor"}
    assert walls.raised_by_kernel == {"language": UP}


@pytest.mark.parametrize("started", [None, Started(error="OSError: no")])
def test_a_process_that_reports_no_walls_is_not_believed(started: Started | None) -> None:
    """It may be about to end."""
    with pytest.raises(KernelDied, match=r"OSError: no|did not report"):
        SessionWalls(()).believe(started)
