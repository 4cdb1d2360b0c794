"""Calls over HTTP, by the client for programs that cannot reach the daemon's socket."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from waiting import SECONDS

from rlm_client.http_client import HttpClient
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import HttpServed, ServeHttp
from rlm_ipc.errors import DaemonUnavailable, ToolFailed


@contextmanager
def served(port: int) -> Iterator[HttpServed]:
    """Serve HTTP by a daemon that is killed at the end, with the server."""
    with DaemonConnection(ServeHttp(port=port), start=True) as control:
        yield control.reply
        daemon = psutil.Process(control.pid)
        daemon.send_signal(signal.SIGKILL)
        psutil.wait_procs([daemon], timeout=SECONDS)


@pytest.mark.usefixtures("isolation", "ended")
def test_a_client_goes_on_when_the_server_is_there_again() -> None:
    """The message says to serve again; the same URL and token are good then, for the same object."""
    with served(0) as first:
        client = HttpClient(first.url, Path(first.token_file).read_text().strip(), "far")
        client.call("load_context", name="log", content="one")
        with pytest.raises(ToolFailed):
            client.call("peek", name="no")
    for _ in range(2):
        with pytest.raises(DaemonUnavailable, match="run `rlm-kernel serve`"):
            client.call("peek", name="log")
    for _ in range(2):
        with served(urlsplit(first.url).port or 0):
            assert client.call("peek", name="log")["content"] == "one"
        with pytest.raises(DaemonUnavailable):
            client.call("peek", name="log")
    client.close()
