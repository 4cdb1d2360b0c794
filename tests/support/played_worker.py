"""A supervisor's line to a keeper, and its link to a kernel process, both of which a test plays itself."""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rlm_ipc import framing
from rlm_ipc.framed_stream import Unfinished
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.processes.worker_link import MOST_UNFINISHED, WorkerLink


@contextmanager
def kept_by_a_test() -> Iterator[Keeping]:
    """Give what a supervisor of the first generation has a keeper keep."""
    line, of_keeper = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with line, of_keeper:
        kept = Keeping(line, 1, [sys.executable])
        kept.keeper = -1  # no process is a child of it: each is one of this process, which learns of its end itself
        yield kept
        for name in list(kept.entries):
            kept.drop(name)


def link_of(lifeline: socket.socket, kept: Keeping) -> WorkerLink:
    """Give the link to the process at the other end of a lifeline."""
    return WorkerLink(lifeline, kept, Unfinished(MOST_UNFINISHED))


@contextmanager
def played_worker(kept: Keeping) -> Iterator[tuple[WorkerLink, socket.socket]]:
    """Give a link, and the line that the process at its other end has got."""
    lifeline, its_own = framing.lifelines()
    link = link_of(lifeline, kept)
    link.attach()
    with its_own, socket.socket(fileno=framing.first_line(its_own)[0]) as line:
        yield link, line
    link.drop()
