"""In the kernel process: how the fork of one session becomes another session.

The fork has every object of its parent. It recreates what two processes must not share: the event loop and the count of
queries. Where its policy is stricter, it adds walls inside the existing ones, because none can be removed.
"""

from __future__ import annotations

import os
import types
from typing import Any

from rlm_ipc import framing
from rlm_ipc.kernel_reports import WallState
from rlm_ipc.worker_protocol import Started, StartFork
from rlm_kernel.session_policy import read_policy
from rlm_kernel.worker.worker_process import WorkerProcess
from rlm_sandbox.language_wall.audit_hook import trusted
from rlm_sandbox.os_wall.report import Wall, WallReport
from rlm_sandbox.policy.compare import admits
from rlm_sandbox.policy.model import Policy


def begin(worker: WorkerProcess, start: StartFork) -> None:
    """Become the session that the supervisor describes and report it, or end the process."""
    try:
        report, descriptors, dropped = _become(worker, start)
    except Exception as error:
        # A process with half of its walls must not serve anyone.
        _send(worker, Started(error=f"{type(error).__name__}: {error}"), ())
        os._exit(1)
    _send(worker, Started(wall_states(report), tuple(dropped)), descriptors)
    framing.close_all(descriptors)
    if worker.session is not None:
        worker.session.close_wall()


@trusted
def _send(worker: WorkerProcess, started: Started, descriptors: tuple[int, ...]) -> None:
    worker.send(started, descriptors)


def wall_states(report: WallReport) -> dict[str, WallState]:
    """Return a report of walls in the form in which the supervisor receives it."""
    return {name: WallState(wall.standing, wall.detail) for name, wall in report.items()}


def _become(worker: WorkerProcess, start: StartFork) -> tuple[WallReport, tuple[int, ...], list[str]]:
    state = worker.session
    assert state is not None
    # A session of its own in the sense of setsid(2): a signal to the parent's process group must not reach this one.
    os.setsid()
    worker.activate()
    policy = read_policy(start.policy)
    streams = worker.stdout, worker.stderr
    standing = WallReport({name: Wall(wall.standing, wall.detail) for name, wall in start.walls.items()})
    report, descriptors = state.branch(worker.kernel.shell, streams, policy, standing)
    state.queries.skip_to(start.query_base)  # a copy from before a running cell does not know what the cell asked
    worker.use_streams()
    dropped = _drop_modules(worker.namespace, policy)
    state.rebind(worker.namespace)
    return report, descriptors, dropped


def _drop_modules(namespace: dict[Any, Any], policy: Policy) -> list[str]:
    """Unbind the modules that the fork inherited and that its own policy does not admit. Return their names."""
    if policy.language.wall == "off":
        return []
    gone = [
        name
        for name, value in namespace.items()
        if isinstance(name, str)
        and not name.startswith("__")
        and issubclass(type(value), types.ModuleType)
        and not admits(policy.language.imports, value.__name__)
    ]
    for name in gone:
        del namespace[name]
    return gone
