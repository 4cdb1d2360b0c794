"""The sockets of Jupyter's channels, as supervisor and bridge bind them for front ends."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from typing import Any

import zmq

from rlm_ipc.messages import JsonObject

_BACKLOG = 100


def address(connection: JsonObject, channel: str) -> str:
    """Return the endpoint of a channel, as jupyter_client writes it."""
    separator = "-" if connection["transport"] == "ipc" else ":"
    return f"{connection['transport']}://{connection['ip']}{separator}{connection[channel + '_port']}"


def listening(connection: JsonObject, channel: str) -> int:
    """Return a descriptor that listens at the address of a channel.  Raises: OSError if it is taken."""
    whole = address(connection, channel)
    with socket.socket(socket.AF_UNIX if connection["transport"] == "ipc" else socket.AF_INET) as sock:
        if connection["transport"] == "ipc":
            path = whole.removeprefix("ipc://")
            with suppress(FileNotFoundError):
                os.unlink(path)
            sock.bind(path)
            # The file gets the umask of the process. Only the folder of our own addresses is 0700: a front end may have
            # chosen another one.
            os.chmod(path, 0o600)
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((connection["ip"], connection[channel + "_port"]))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
        return sock.detach()


def bound(
    context: zmq.Context[Any], connection: JsonObject, channel: str, listener: int | None = None
) -> zmq.Socket[bytes]:
    """Return a socket for front ends on that channel, which listens itself or through a copy of ``listener``.

    Raises: zmq.ZMQError if its address is taken.
    """
    sock: zmq.Socket[bytes] = context.socket(zmq.XPUB if channel == "iopub" else zmq.ROUTER)
    try:
        if channel == "iopub":
            # Otherwise XPUB reports only the first subscriber of a topic, and every later one would wait for its
            # welcome.
            sock.setsockopt(zmq.XPUB_VERBOSE, 1)
        else:
            # A client that reconnects under its old identity takes over. Otherwise ROUTER would ignore it as a
            # duplicate.
            sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if listener is not None:
            sock.setsockopt(zmq.USE_FD, fcntl.fcntl(listener, fcntl.F_DUPFD_CLOEXEC, 0))
        sock.bind(address(connection, channel))
        if connection["transport"] == "ipc" and listener is None:
            # zmq creates the file under the process's umask. Only the folder of our own addresses is 0700: a front end
            # may have chosen another one.
            os.chmod(address(connection, channel).removeprefix("ipc://"), 0o600)
    except BaseException:
        sock.close(linger=0)
        raise
    return sock
