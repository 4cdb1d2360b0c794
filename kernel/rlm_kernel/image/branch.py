"""In the kernel process: how a fork of one session becomes another.

The fork has every object of the session it comes from. What it must not share is made anew: the event loop and the
count of its queries; and where its policy is stricter, walls are added inside those that stand.
"""

from __future__ import annotations

import os
import threading
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlm_kernel import process, tags, wire
from rlm_sandbox.language.audit import trusted
from rlm_sandbox.oswall.report import WallReport
from rlm_sandbox.policy import Policy, admits

if TYPE_CHECKING:
    from rlm_kernel.image.worker import Worker


def begin(worker: Worker, spec: Mapping[str, Any]) -> None:
    """Become the session of ``spec`` (policy, walls that stand, cells to repeat) and tell the host, or end."""
    try:
        report, descriptors, dropped = _become(worker, spec)
    except Exception as error:
        worker.link.send(tags.BEGUN, (wire.json_frame({"error": f"{type(error).__name__}: {error}"}),))
        os._exit(1)
    answer = {"walls": report.to_dict(), "dropped_modules": dropped}
    _send(worker, answer, descriptors)
    for fd in descriptors:
        os.close(fd)
    if worker.session is not None:
        worker.session.close_wall()


@trusted
def _send(worker: Worker, answer: Mapping[str, Any], descriptors: tuple[int, ...]) -> None:
    worker.link.send(tags.BEGUN, (wire.json_frame(answer),), descriptors)


def _become(worker: Worker, spec: Mapping[str, Any]) -> tuple[WallReport, tuple[int, ...], list[str]]:
    state = worker.session
    assert state is not None
    os.setsid()
    worker.activate()
    if not all(map(worker.repeat, spec["repeat"])):
        raise RuntimeError("a cell of the parent's did not go as it went the first time")
    policy = Policy.model_validate_json(spec["policy"])
    streams = worker.stdout, worker.stderr
    standing = WallReport.from_dict(spec["walls"])
    report, descriptors = state.branch(worker.kernel.shell, streams, policy, standing)
    worker.use_streams()
    dropped = _drop_modules(worker.namespace, policy)
    state.rebind(worker.namespace)
    return report, descriptors, dropped


def _drop_modules(namespace: dict[str, Any], policy: Policy) -> list[str]:
    """Unbind the modules that the session came with and may not import itself; returns their names."""
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


def other_threads() -> list[str]:
    """The names of the threads besides the one that serves: they do not survive a fork."""
    count = process.thread_count()
    if count <= 1:
        return []
    main = threading.main_thread()
    named = [thread.name for thread in threading.enumerate() if thread is not main]
    return named + ["(a thread of a library)"] * (count - 1 - len(named))
