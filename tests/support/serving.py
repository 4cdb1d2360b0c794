"""Who serves the sockets of a test: its daemon and its supervisor, by their numbers or by a connection.

`inventory` looks for them where there may be none; here it is an error if nobody serves.
"""

from __future__ import annotations

import socket
from contextlib import AbstractContextManager, closing, suppress

from session_processes import end_process

from rlm_ipc import discovery
from rlm_ipc import supervisor_core as core
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.daemon_connection import the_socket
from rlm_kernel.blocking_client import BlockingClient


def _connect(path: object) -> socket.socket:
    if (line := discovery.connect(str(path))) is None:
        raise LookupError(f"nobody serves {path}")
    return line


def the_daemon() -> int:
    """Return the process of the daemon."""
    with _connect(the_socket()) as line:
        return discovery.peer(line).pid


def the_supervisor() -> int:
    """Return the process of the supervisor, which may just have ended: it is known until the next one listens."""
    with _connect(discovery.runtime_dir() / "supervisor.sock") as line:
        return discovery.peer(line).pid


def kill_daemon() -> None:
    """Kill the daemon; the next call starts another one."""
    end_process(the_daemon())


def supervisor_client() -> AbstractContextManager[BlockingClient]:
    """Connect to the supervisor."""
    return closing(BlockingClient(_connect(discovery.runtime_dir() / "supervisor.sock")))


def kernel_state(session: str) -> str:
    """Return what the supervisor says of a session's kernel; empty if there is none."""
    with suppress(LookupError), supervisor_client() as client:
        kernels = client.call(protocol.LIST_ALL, core.ListAll()).kernels
        return next((kernel.state for kernel in kernels if kernel.label.get("session") == session), "")
    return ""
