"""A client that follows frames, while the daemon that notifies it is killed: in a file with no other daemon."""

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from following import TREE, over_front

from rlm_client.client import call_tool
from rlm_ipc.daemon_connection import DaemonConnection
from rlm_ipc.daemon_requests import ShowStatus

# How a client of 2025 subscribes has gone from the protocol of 2026.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore:resources.*subscribe:UserWarning")]


@pytest.mark.usefixtures("ended")
async def test_who_subscribed_hears_on_after_the_daemon_was_killed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F-11: the front brings its subscriptions to the next daemon, and has the client look at what it has missed."""
    monkeypatch.chdir(tmp_path)
    goal = call_tool("plan", {"goal": "one"}, session="project")["frame"]
    context = f"{TREE}/{goal}/context"

    async def planned(part: str) -> Any:
        given = {"goal": part, "parent": goal}
        return await anyio.to_thread.run_sync(lambda: call_tool("plan", given, session="project"))

    async with over_front("project", [TREE, context], "legacy") as heard:
        for part in ("first", "second"):
            with DaemonConnection(ShowStatus()) as control:
                os.kill(control.pid, signal.SIGKILL)
            await heard.until(TREE, context)
            await heard.read(context)  # it looks, and so by now the daemon knows what it follows
            await planned(part)
            await heard.until(TREE, context)
            assert f"<goal>{part}</goal>" in await heard.read(context)
