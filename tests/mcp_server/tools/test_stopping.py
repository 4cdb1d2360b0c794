"""A daemon that stops starts nothing: what ends at the same time, as when a user logs out, stays ended."""

import asyncio
from pathlib import Path
from typing import Any

import psutil
import pytest
from inventory import supervisor as serving
from session_processes import kill_with_keeper
from waiting import until

from rlm_ipc.kernel_reports import KernelInfo
from rlm_mcp.service.service import Service

from .conftest import connector

pytestmark = pytest.mark.anyio


async def test_a_host_that_ends_while_the_daemon_stops_is_not_started_again(isolation: Any, tmp_path: Path) -> None:
    """Sessions that come back are saved then, if that can be done; a kernel that is gone is not made anew for it."""
    policy = tmp_path / "back.yaml"
    policy.write_text("extends: default\nreopen: true\n")
    async with Service.open(tmp_path) as service:
        async with connector(service)("s", RLM_KERNEL_POLICY=str(policy)) as agent:
            assert (await agent.run("n = 1"))["success"]
        (session,) = service.sessions
        told = session.kernel.seen

        async def seen() -> KernelInfo | None:
            """What was true when it was told."""
            info, process = await told(), serving()
            assert process is not None
            await asyncio.to_thread(kill_with_keeper, process.pid)
            await until(lambda: not service.gateway.connected)  # until this process knows
            return info

        session.kernel.seen = seen  # type: ignore[method-assign]
    after = serving()
    if after is not None:
        after.terminate()
        psutil.wait_procs([after], timeout=60)
    assert after is None
