"""What the daemon makes of a supervisor's successor, which learns only bit by bit what the one before it knew."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from model_endpoint import Reply
from waiting import until

from rlm_ipc.kernel_reports import CellNote, KernelInfo
from rlm_ipc.supervisor_core import KernelState
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.cells.runs import Waiting
from rlm_mcp.service.service import Service
from rlm_mcp.service.sessions.sessions import Session

from .conftest import connector

pytestmark = pytest.mark.anyio
SECONDS = 60.0


@pytest.fixture
def asking(isolation: Any) -> Callable[[str], str]:
    """Write a policy whose code asks in a mode; returns its name."""

    def write(mode: str) -> str:
        folder: Path = isolation.config / "policies"
        folder.mkdir(exist_ok=True)
        (folder / f"{mode}.yaml").write_text(
            f"extends: default\nllm: {{mode: {mode}, modes: [deferred], wait_seconds: 60}}\n"
        )
        return mode

    return write


async def _settled(service: Service, session: Session) -> None:
    """What the daemon has asked the supervisor until now is answered, with what it asks because of these answers."""
    client, kernel_id = await service.gateway.client(), session.kernel.kernel_id
    assert kernel_id is not None
    for _ in range(20):
        await client.kernel_info(kernel_id)


@asynccontextmanager
async def _silent(service: Service, session: Session) -> AsyncIterator[int]:
    """While the kernel of a cell that waits is stopped, another supervisor takes over; gives the kernel's process.

    So it has not said yet that it waits when the daemon asks the next supervisor for all that it has missed.
    """
    client, kernel_id = await service.gateway.client(), session.kernel.kernel_id
    assert kernel_id is not None
    worker, before = (await client.kernel_info(kernel_id)).pid, client.pid
    assert worker is not None
    assert before is not None
    os.kill(worker, signal.SIGSTOP)
    try:
        os.kill(before, signal.SIGKILL)
        await until(lambda: client.pid != before)
        await _settled(service, session)
        yield worker
    finally:
        os.kill(worker, signal.SIGCONT)


async def test_a_model_goes_on_answering_while_the_next_supervisor_knows_of_no_wait(
    live: Service, attach: Any, endpoint: Any, isolation: Any, asking: Callable[[str], str]
) -> None:
    """Its queries were cancelled, and the cell waited for them until its time was up."""
    endpoint.configure(isolation.config, retries=0)
    go = threading.Event()
    endpoint.reply = lambda _: Reply("late") if go.wait(SECONDS) else Reply("never")
    async with attach("model", RLM_KERNEL_POLICY=asking("provider")) as agent, asyncio.timeout(SECONDS):
        waits = asyncio.create_task(agent.run("print(llm_query('p'))"))
        session = await until(lambda: live.sessions.get("model"))
        await until(lambda: endpoint.requests and session.kernel.queries.waiting)
        async with _silent(live, session):
            pass
        go.set()
        assert (await waits)["stdout"] == "late\n"
        await agent("end_session")


async def test_an_answer_that_comes_before_the_kernel_asks_again_reaches_it(
    live: Service, attach: Any, asking: Callable[[str], str]
) -> None:
    """The next supervisor knew the answer by then, and so of no question that the cell could wait for."""
    async with attach("agent", RLM_KERNEL_POLICY=asking("blocking")) as agent, asyncio.timeout(SECONDS):
        waits = await agent.run("print(llm_query('p'))")
        assert waits["status"] == "waiting"
        session = live.sessions.named("agent")
        async with _silent(live, session):
            answering = asyncio.create_task(agent("answer_queries", answers={"q_000": "A"}))
            await until(lambda: not live.queries.list_pending("agent"))
            await _settled(live, session)
        await answering
        await until(lambda: not session.kernel.queries.waiting)
        done = await agent.finished(await agent("wait", run=waits["run"]))
        assert (done["stdout"], done["pending_llm_queries"]) == ("A\n", [])
        await agent("end_session")


async def test_a_cell_that_has_its_answer_waits_for_nothing_under_the_next_supervisor(
    live: Service, attach: Any, asking: Callable[[str], str]
) -> None:
    """Its time limit stood still, and its agent was told to answer what it had answered.

    The kernel says again all that it has said since the cell began, also that it waits.
    """
    asks = "llm_query('later', mode='deferred')\nllm_query('now')"
    code = "while not os.path.exists('go-on'):\n    print(end='.', flush=True)\n    time.sleep(0.01)"
    async with attach("goes", RLM_KERNEL_POLICY=asking("blocking")) as agent, asyncio.timeout(SECONDS):
        waits = await agent.run(f"import os, time\n{asks}\n{code}")
        assert waits["status"] == "waiting"
        session = live.sessions.named("goes")
        client, kernel_id = await live.gateway.client(), session.kernel.kernel_id
        assert kernel_id is not None
        assert (await agent("answer_queries", answers={"q_001": "A"}))["status"] == "running"
        before = client.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        await until(lambda: client.pid != before)
        shown = len((await client.running(kernel_id)).stdout)
        await until(lambda: client.running(kernel_id), lambda told: len(told.stdout) > shown)
        await _settled(live, session)
        assert (await client.kernel_info(kernel_id)).waiting == ()
        assert (await agent("wait", run=waits["run"]))["status"] == "running"
        await agent.let_go()
        done = await agent.finished(await agent("wait", run=waits["run"]))
        assert [row["id"] for row in done["pending_llm_queries"]] == ["q_000"]
        await agent("end_session")


async def test_nothing_waits_any_more_in_a_kernel_that_ends_before_it_says_that_it_waits(
    live: Service, attach: Any, asking: Callable[[str], str]
) -> None:
    """Else whoever wants a turn in the session were sent to answer queries that nobody asks."""
    async with attach("ends", RLM_KERNEL_POLICY=asking("blocking")) as agent, asyncio.timeout(SECONDS):
        waits = await agent.run("print(llm_query('p'))")
        assert waits["status"] == "waiting"
        async with _silent(live, live.sessions.named("ends")) as worker:
            os.kill(worker, signal.SIGKILL)
        died = await agent("wait", run=waits["run"])
        while died.get("status") in {"running", "waiting"}:
            died = await agent("wait", run=waits["run"])
        assert died["error"] == "kernel_died"
        assert (await agent.run("x = 'text'"))["success"]
        assert (await agent("peek", name="x"))["content"] == "text"
        await agent("end_session")


class EndsInTime(SupervisorClient):
    """Lets the cell that runs end just when it was asked which cells have ended."""

    async def cells(self, kernel_id: str, after: int = 0) -> list[CellNote]:
        ended = await super().cells(kernel_id, after)
        Path((await self.kernel_info(kernel_id)).scratch, "go-on").touch()
        await until(lambda: self.kernel_info(kernel_id), lambda told: told.state == KernelState.IDLE)
        return ended


async def test_a_cell_that_ends_while_the_next_daemon_looks_for_it_is_found(supervisor: None, tmp_path: Path) -> None:
    """It was neither among the cells that had ended nor the one that ran, and `wait` knew of no code at all."""

    async def connect(start: bool) -> SupervisorClient:
        return await EndsInTime.connect(start=start)

    waiting = Waiting(longest=1.0)
    async with Service.open(tmp_path, waiting=waiting) as service, connector(service)("found") as agent:
        assert (await agent("eval_code", code=f"{agent.HELD}5"))["status"] == "running"
    async with (
        Service.open(tmp_path, waiting=waiting, connect=connect) as service,
        connector(service)("found") as agent,
    ):
        assert (await agent("wait"))["result"] == "5"
        assert len(service.journal.of_session(service.sessions.named("found").key)) == 1
        await agent("end_session")


class EndsAll(SupervisorClient):
    """Ends all kernels just when it was asked which there are."""

    async def kernels(self) -> list[KernelInfo]:
        found = await super().kernels()
        for info in found:
            await self.shutdown(info.kernel_id)
        return found


async def test_a_kernel_that_ends_before_the_next_daemon_listens_is_not_taken_for_a_live_one(
    supervisor: None, tmp_path: Path
) -> None:
    """The next cell failed; now it runs in a kernel that has what was saved."""

    async def connect(start: bool) -> SupervisorClient:
        return await EndsAll.connect(start=start)

    async with Service.open(tmp_path) as service, connector(service)("ends") as agent:
        assert (await agent.run("x = 5"))["success"]
    async with Service.open(tmp_path, connect=connect) as service, connector(service)("ends") as agent:
        assert (await agent.run("x"))["result"] == "5"
        await agent("end_session")
