"""The project lock over HTTP: a client that is not on this machine gets the project of the session that it names."""

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from rlm_client import Client as OurClient
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ServeHttp

pytestmark = pytest.mark.anyio


async def called(session: str, name: str, **arguments: Any) -> Any:
    """Call a tool as the official client does."""
    with DaemonConnection(ServeHttp(port=0)) as control:
        token = Path(control.reply.token_file).read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Rlm-Session": session}
        with anyio.fail_after(100):
            async with (
                create_mcp_http_client(headers=headers) as web,
                Client(streamable_http_client(control.reply.url, http_client=web)) as client,
            ):
                result = await client.call_tool(name, arguments)
    return json.loads(result.content[0].text)  # type: ignore[union-attr]


async def test_the_lock_is_that_of_the_sessions_project(
    daemon: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L-6, L-15: with the documented fields; a session without a project has none."""
    (tmp_path / "app.py").write_text("def main(): ...\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    monkeypatch.chdir(tmp_path)

    def asked_here() -> str:
        with OurClient("remote") as client:
            return str(client.lock(priority="P3")["meta"]["root"])

    root = await anyio.to_thread.run_sync(asked_here)
    told = await called("remote", "lock", lock_id="far", priority="P0")
    assert (told["lock_id"], told["ttl_seconds"], told["meta"]["root"]) == ("far", 3600, root)
    assert told["content"]["project"]["files"]["untracked"] == 1
    assert (await called("elsewhere", "lock"))["error"] == "no_project"
