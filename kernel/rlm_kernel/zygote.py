"""The zygote: a process with everything imported and warmed, that does nothing but fork sessions.

Started by the host as ``python -P -m rlm_kernel.zygote``, with an empty environment: a forked kernel inherits its heap
and ``/proc/self/environ``. It is single-threaded, so its forks are safe; it is frozen for the collector, so that its
pages stay shared.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import sys

from rlm_kernel import process


def main() -> None:
    """Warm up, say hello, and serve forks until the host goes away."""
    options = argparse.ArgumentParser(prog="rlm_kernel.zygote")
    options.add_argument("--fd", type=int, required=True, help="the line to the host")
    options.add_argument("--supervisor", type=int, required=True, help="pid of the host")
    options.add_argument("--preload", default="", help="modules to import before the first fork, comma-separated")
    given = options.parse_args()
    process.die_with_parent()
    if os.getppid() != given.supervisor:
        sys.exit(process.EXIT_ORPHAN)
    # No debugger in a kernel: it would start threads, and a process with threads cannot be forked safely.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    os.environ.pop("PYTHONPATH", None)
    for name in filter(None, given.preload.split(",")):
        importlib.import_module(name)

    from rlm_kernel.contexts import sharedstr
    from rlm_kernel.contexts.jsonlines import support_json
    from rlm_kernel.image.worker import Worker
    from rlm_sandbox.language.wall import LanguageWall
    from rlm_sandbox.oswall import confine
    from rlm_sandbox.policy import load_policy

    default = load_policy("default")
    support_json()  # before `preload`: then classes of the standard library cannot be changed any more
    LanguageWall.preload(default)
    confine.prepare(default)
    sharedstr.available()
    worker = Worker(socket.socket(fileno=given.fd), given.supervisor)
    worker.warm(default)
    worker.hello({"kernel_info": worker.kernel.kernel_info})
    worker.serve()


if __name__ == "__main__":
    main()
