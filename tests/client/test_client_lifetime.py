"""What the Python client starts, outlives and imports."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

import rlm_client
from rlm_client import AsyncClient, Client
from rlm_ipc.daemon_connection import DaemonConnection, is_running
from rlm_ipc.daemon_requests import ShowStatus, StopDaemon
from rlm_ipc.errors import DaemonUnavailable


@pytest.mark.usefixtures("ended")
def test_a_client_starts_a_daemon_and_outlives_it() -> None:
    """A daemon that has ended between two calls is replaced; the session is there again."""
    with Client("outlives") as client:
        client.eval_code("x = 41")
        with DaemonConnection(StopDaemon()) as control:
            control.wait_for_end()
        assert client.eval_code("x + 1").result == "42"


@pytest.mark.usefixtures("ended")
def test_an_idle_connection_of_a_daemon_that_has_ended_is_not_used_again() -> None:
    """An `AsyncClient` keeps connections between calls; it connects anew."""

    async def work() -> str | None:
        async with AsyncClient("replaced") as client:
            await client.eval_code("x = 41")
            with DaemonConnection(StopDaemon()) as control:
                control.wait_for_end()
            return (await client.eval_code("x + 1")).result

    assert asyncio.run(work()) == "42"


def test_a_request_that_only_looks_starts_no_daemon() -> None:
    """Asking for a status must not make what is asked for."""
    with pytest.raises(DaemonUnavailable, match="daemon start"):
        DaemonConnection(ShowStatus())
    assert not is_running()


def test_a_daemon_that_cannot_start_is_no_daemon_to_a_client(ended: None, isolation: Any) -> None:
    """One family of errors: a program that calls again when the daemon was away has nothing else to catch.

    The reason is told in a sentence, without a traceback before it.
    """
    reason = "did not start; its output:\nrlm-kernel daemon: the database "
    (isolation.state / "rlm.sqlite3").write_text("no database\n" * 100)
    with Client("s") as client, pytest.raises(DaemonUnavailable, match=reason):
        client.status()

    async def look() -> None:
        async with AsyncClient("s") as client:
            await client.status()

    with pytest.raises(DaemonUnavailable, match="did not start"):
        asyncio.run(look())
    assert not is_running()


def test_importing_the_package_imports_nothing_else() -> None:
    """The front, the zygote and the host import it while somebody waits."""
    code = "import sys; import rlm_client; print([name for name in sys.modules if name.startswith('rlm_client.')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
    assert {name: getattr(rlm_client, name).__name__ for name in rlm_client.__all__} == {
        name: name for name in ("RLM", "AsyncClient", "Client", "JCodeClient", "RunLimits")
    }
    with pytest.raises(AttributeError, match="nothing"):
        _ = rlm_client.nothing
