"""Confines a forked copy of a worker further, as a session needs it that was forked under a stricter policy.

The walls of the system stay on every copy and cannot be widened, so new ones are added inside them. The process must
have a single thread, as after any fork. A copy under the same policy only loses the right to signal the process that it
was copied from.

The copy raises the new walls itself, and until then it ran under the outer policy. So they hold against all code that
runs afterwards, but not against native code that had taken over the process before the fork.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
from pathlib import Path

from rlm_sandbox.errors import WallSetupError
from rlm_sandbox.os_wall import bpf, landlock, rlimits, seccomp
from rlm_sandbox.os_wall.confine import Confinement, file_rules
from rlm_sandbox.os_wall.report import WallReport
from rlm_sandbox.policy.model import Policy

MOST_LAYERS = 16
"""How many Landlock domains the system lets lie within each other."""


def tighten(inner: Policy, outer: Policy, *, scratch: Path, standing: WallReport) -> Confinement:
    """Confine this process, which is under ``outer`` with the walls ``standing``, to ``inner`` for good.

    ``inner`` must not be looser (`rlm_sandbox.policy.loosened`). Both have real paths. The result's report holds all
    walls. Its ``notify_fd`` is a fork gate's if the process had no gate and now needs one.

    Raises:
        WallSetupError: A wall that stands cannot be narrowed; the process must end.
    """
    report = WallReport(dict(standing))
    if inner.walls.private and "private" not in report:
        report.set(
            "private", False, "the parent session has none, and the walls of a fork leave no way to raise one later"
        )
    rlimits.tighten(inner, outer)
    if sys.platform != "linux":
        return Confinement(report, None)
    if report["landlock"].standing and _reach(inner) != _reach(outer):
        _narrow_files(inner, scratch, report)
    notify_fd = None
    if report["seccomp"].standing:
        notify_fd = _narrow_calls(inner, outer, report)
    return Confinement(report, notify_fd)


def _reach(policy: Policy) -> tuple[object, ...]:
    """The parts of a policy that the file rules depend on."""
    return policy.files, policy.network, policy.limits.processes > 0


def _calls(policy: Policy) -> tuple[object, ...]:
    """The parts of a policy that the seccomp filter depends on."""
    return policy.limits.processes == 0, policy.files.metadata, policy.network


def _narrow_files(inner: Policy, scratch: Path, report: WallReport) -> None:
    try:
        # The outer domain excludes the protected folders already, so they need not be carved out again.
        landlock.restrict(file_rules(inner, scratch.resolve(), (), ()), network=inner.network)
    except OSError as error:
        if error.errno == errno.E2BIG:
            why = f"its ancestors have {MOST_LAYERS} different policies, the system's limit; fork an earlier session"
        else:
            why = str(error)
        raise WallSetupError(f"the file rules cannot be narrowed: {why}") from error
    report.set("landlock", True, f"{report['landlock'].detail}; narrowed to policy {inner.name}")


def _narrow_calls(inner: Policy, outer: Policy, report: WallReport) -> int | None:
    machine, pid = platform.machine(), os.getpid()
    closing = outer.limits.processes > 0 and inner.limits.processes == 0
    ask_supervisor = closing and bpf.NOTIFY in seccomp.available_actions()
    try:
        if _calls(inner) != _calls(outer):
            program = seccomp.build_filter(
                inner, machine=machine, pid=pid, ask_supervisor=ask_supervisor, second=not closing
            )
            notify_fd = seccomp.install(program, listener=ask_supervisor)
        elif inner.limits.processes == 0:
            notify_fd = seccomp.install(seccomp.build_signal_filter(machine=machine, pid=pid), listener=False)
        else:
            return None
    except OSError as error:
        raise WallSetupError(f"the filter of system calls cannot be narrowed: {error}") from error
    if closing:
        report.set("seccomp", True, "only the calls a kernel needs")
        copies = "only when the supervisor asks" if notify_fd is not None else "never"
        report.set("process_creation", True, f"no programs; copies {copies}")
    return notify_fd
