"""Start the keeper. It imports little: it is the first thing that a supervisor does."""

from __future__ import annotations

import os
import resource
import socket
import sys

from rlm_ipc import processes
from rlm_kernel.keeper import keeper


def start_under_keeper() -> socket.socket:
    """Continue in a child of a process that becomes the keeper. Return the line to it. For a process with one thread.

    So the keeper is the parent of this supervisor, of the next ones, and of every process that they leave behind.
    """
    processes.become_subreaper()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        os.set_inheritable(theirs.fileno(), True)
        argv = keeper_command(theirs.fileno())
        os.execv(argv[0], argv)
    theirs.close()
    return ours


def keeper_command(descriptor: int) -> list[str]:
    """Return the command of a keeper whose line to the supervisor is ``descriptor``."""
    return [sys.executable, "-I", "-S", keeper.__file__, str(descriptor)]
