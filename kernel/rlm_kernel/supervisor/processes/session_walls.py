"""The walls around one session's code, as its process reports them, and those that its policy requires."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_ipc.errors import KernelDied, WallsMissing
from rlm_ipc.kernel_reports import WallState
from rlm_ipc.worker_protocol import Started
from rlm_sandbox.policy.layer_names import WALL_NAMES

_MONITOR = {"monitor": WallState(True, "the supervisor watches time, memory and output")}
_NOT_RAISED = WallState(False, "nothing raised it")


class SessionWalls:
    """Which walls are active. ``required`` are the names of those without which no code may run."""

    def __init__(self, required: Sequence[str]) -> None:
        self._required = required
        self.states: dict[str, WallState] = {}

    def believe(self, started: Started | None) -> None:
        """Record the walls that a process reports; raises `KernelDied` with the error that it reports instead.

        The report comes from a process that has run no user code yet, so it can be believed.
        """
        if started is None or started.error is not None:
            why = "it did not report its walls" if started is None else started.error
            raise KernelDied(f"a kernel could not start: {why}")
        self.states = {name: started.walls[name] for name in WALL_NAMES if name in started.walls} | _MONITOR

    def demand(self) -> None:
        """Raise `WallsMissing` unless every wall that the policy requires is active."""
        states = {name: self.states.get(name, _NOT_RAISED) for name in self._required}
        missing = [f"{name} ({state.detail})" for name, state in states.items() if not state.standing]
        if missing:
            raise WallsMissing(missing)

    @property
    def raised_by_kernel(self) -> dict[str, WallState]:
        """Return those that a fork inherits from the process; the supervisor's own is not among them."""
        return {name: state for name, state in self.states.items() if name not in _MONITOR}
