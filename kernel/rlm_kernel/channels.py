"""The sockets of Jupyter's channels, as supervisor and bridge bind them for front ends."""

from __future__ import annotations

import os
from typing import Any

import zmq

from rlm_ipc.messages import JsonObject

__all__ = ["address", "bound"]


def address(connection: JsonObject, channel: str) -> str:
    """The endpoint of a channel, as jupyter_client writes it."""
    separator = "-" if connection["transport"] == "ipc" else ":"
    return f"{connection['transport']}://{connection['ip']}{separator}{connection[channel + '_port']}"


def bound(context: zmq.Context[Any], connection: JsonObject, channel: str) -> zmq.Socket[bytes]:
    """A socket that listens for front ends on that channel.  Raises: zmq.ZMQError if its address is taken."""
    sock: zmq.Socket[bytes] = context.socket(zmq.XPUB if channel == "iopub" else zmq.ROUTER)
    try:
        if channel == "iopub":
            # Else XPUB reports only the first subscriber of a topic, and every further one would wait for its welcome.
            sock.setsockopt(zmq.XPUB_VERBOSE, 1)
        else:
            # A client that reconnects under its old identity takes over. Else ROUTER would ignore it as a duplicate.
            sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
        sock.bind(address(connection, channel))
        if connection["transport"] == "ipc":
            # zmq makes the file under the process's umask. The folder is 0700 for our own addresses only: a front end
            # may have chosen another one.
            os.chmod(address(connection, channel).removeprefix("ipc://"), 0o600)
    except BaseException:
        sock.close(linger=0)
        raise
    return sock
