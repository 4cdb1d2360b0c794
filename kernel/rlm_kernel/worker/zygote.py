"""``python -m rlm_kernel.worker.zygote --fd LIFELINE --preload MODULES``: the process that sessions are forked from.

It has everything imported and warmed up, and does nothing but fork. ``--preload`` names modules to import before the
first fork, separated by commas.

A fork starts a kernel in about 35 ms, where a new Python process with numpy and pandas needs 3.5 seconds. Every kernel
inherits this process's heap and ``/proc/self/environ``, so the supervisor starts it with an empty environment. It stays
single-threaded, which makes its forks safe. Its objects are frozen for the collector, which keeps their pages shared.
"""

from __future__ import annotations

import importlib
import os
import select
import socket
import sys

from rlm_ipc import framing, processes
from rlm_ipc.late_dataclasses import complete


def main() -> None:
    """Warm up, send the handshake, and serve forks until nobody holds the lifeline any more."""
    os.chdir("/")
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True))
    lifeline = socket.socket(fileno=int(given["--fd"]))
    # It looks at its lifeline only when it has warmed up, seconds from now. Until then only this supervisor knows it.
    processes.die_with_parent()
    if _is_cut(lifeline):
        return
    processes.begin_startup()
    # No debugger in a kernel: it would start threads, and a process with threads cannot be forked safely.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    os.environ.pop("PYTHONPATH", None)
    # Imported once, here: importing in each worker would cost time and pages again in every session.
    for name in filter(None, given["--preload"].split(",")):
        importlib.import_module(name)

    from rlm_kernel.worker.ipykernel_import import import_ipykernel

    import_ipykernel()
    from rlm_contexts.text import shared_str
    from rlm_contexts.view.json_support import support_json
    from rlm_kernel.worker.worker import Worker
    from rlm_sandbox.language_wall.wall import LanguageWall
    from rlm_sandbox.os_wall import confine
    from rlm_sandbox.policy.final import final_default

    default = final_default()
    support_json()  # before `preload`, after which classes of the standard library cannot be changed any more
    LanguageWall.preload(default)
    # What this system allows is found out once, and every fork inherits the answers. That halves its time to start.
    confine.prepare(default)
    shared_str.available()
    line, generation = framing.first_line(lifeline)
    worker = Worker(socket.socket(fileno=line), lifeline, generation)
    complete()  # here, where forks share it, and where no code of a session seems to compile it
    worker.warmup.warm(default)
    processes.outlive_parent()
    worker.process.handshake(kernel_info=worker.process.kernel.kernel_info)
    worker.serve()


def _is_cut(lifeline: socket.socket) -> bool:
    """Return whether nobody holds the other end: the supervisor had died before this process asked to die with it."""
    poll = select.poll()
    poll.register(lifeline, 0)
    return bool(poll.poll(0))


if __name__ == "__main__":
    main()
