"""`checkpoint: durable` on a disk that is slow: what is saved while the kernel dies."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from session_processes import kill_with_keeper
from waiting import SECONDS, until

from rlm_mcp.formats.pieces import PieceWriter
from rlm_mcp.service.service import Service

pytestmark = pytest.mark.anyio
CELLS = 5
LIMITS = f"{{unsaved_seconds: 3600, unsaved_cells: {CELLS}}}"


async def _end_supervisor(service: Service) -> None:
    client = await service.gateway.client()
    await asyncio.to_thread(kill_with_keeper, client.pid)
    await client.wait_gone()


async def _value(agent: Any, code: str) -> Any:
    """What a cell comes to in a kernel that is there, or in the next one."""
    answer = await agent.run(code)
    return answer if answer.get("success") else await agent.run(code)


async def test_no_variables_come_back_that_the_kernel_before_did_not_have(
    alone: Service, connect_alone, isolation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel died while its variables were being saved, and the next one got those of the save before, or these."""
    policies: Path = isolation.config / "policies"
    policies.mkdir()
    (policies / "slow.yaml").write_text(f"extends: default\ncheckpoint: durable\nlimits: {LIMITS}\n")
    write, writes, goes_on, written = PieceWriter.finish, threading.Event(), threading.Event(), threading.Event()

    def write_once(self: PieceWriter, *arguments: Any) -> None:
        if written.is_set():
            raise OSError("the disk takes no more")
        writes.set()
        assert goes_on.wait(SECONDS)
        write(self, *arguments)
        written.set()

    async with connect_alone("s", RLM_KERNEL_POLICY="slow") as agent:
        for _ in range(CELLS):
            await agent.run("n = 1")
        await until(lambda: agent("status"), lambda status: status["unsaved"]["cells"] == 0)
        monkeypatch.setattr(PieceWriter, "finish", write_once)
        for _ in range(CELLS):
            await agent.run("n = 2")
        await until(writes.is_set)
        await _end_supervisor(alone)
        first = asyncio.create_task(_value(agent, "n"))
        await asyncio.wait({first}, timeout=5)  # without an order, the kernel has what is there by then
        goes_on.set()
        kept = await first
        await until(written.is_set)
        await _end_supervisor(alone)
        assert (await _value(agent, "n"))["result"] == kept["result"]
