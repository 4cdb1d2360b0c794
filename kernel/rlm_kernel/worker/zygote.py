"""The zygote: a process with everything imported and warmed, that does nothing but fork sessions.

The supervisor starts it with an empty environment, because a forked kernel inherits its heap
and ``/proc/self/environ``. It is single-threaded, so its forks are safe; it is frozen for the collector, so that its
pages stay shared.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import sys

from rlm_ipc import processes


def main() -> None:
    """Warm up, say handshake, and serve forks until the supervisor goes away."""
    options = argparse.ArgumentParser(prog="rlm_kernel.worker.zygote")
    options.add_argument("--fd", type=int, required=True, help="the line to the supervisor")
    options.add_argument("--supervisor", type=int, required=True, help="pid of the supervisor")
    options.add_argument("--preload", default="", help="modules to import before the first fork, comma-separated")
    given = options.parse_args()
    processes.die_with_parent()
    if os.getppid() != given.supervisor:
        sys.exit(processes.EXIT_ORPHAN)
    # No debugger in a kernel: it would start threads, and a process with threads cannot be forked safely.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    os.environ.pop("PYTHONPATH", None)
    for name in filter(None, given.preload.split(",")):
        importlib.import_module(name)

    from rlm_contexts.text import shared_str
    from rlm_contexts.view.json_support import support_json
    from rlm_kernel.worker.worker import Worker
    from rlm_sandbox.language_wall.wall import LanguageWall
    from rlm_sandbox.os_wall import confine
    from rlm_sandbox.policy import load_policy

    default = load_policy("default")
    support_json()  # before `preload`: then classes of the standard library cannot be changed any more
    LanguageWall.preload(default)
    confine.prepare(default)
    shared_str.available()
    worker = Worker(socket.socket(fileno=given.fd), given.supervisor)
    worker.warm(default)
    worker.handshake(kernel_info=worker.kernel.kernel_info)
    worker.serve()


if __name__ == "__main__":
    main()
