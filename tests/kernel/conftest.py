"""Real supervisors and kernels for the tests of this folder."""

import asyncio
import contextlib
import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import SECONDS

from rlm_contexts.store.store import ContextStore
from rlm_ipc.errors import UnknownKernel
from rlm_ipc.kernel_reports import CellResult, KernelInfo
from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import Policy, load_policy

Spawn = Callable[..., Awaitable[KernelInfo]]
Run = Callable[[str], Awaitable[CellResult]]


class Signal:
    """What a cell waits for: it goes on when the test says so, however long what the test does meanwhile takes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        waiting = f"import os, time\nwhile not os.path.exists({str(file)!r}): "
        self.wait = f"{waiting}time.sleep(0.005)\n"
        self.wait_and_print = f"{waiting}print('going on'); time.sleep(0.005)\n"

    def give(self) -> None:
        """Let the cell go on."""
        self._file.touch()


async def end_supervisor(client: SupervisorClient) -> None:
    """Stop the supervisor and wait until it is gone."""
    if client.alive and client.pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it may be about to be gone
            os.kill(client.pid, signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            await client.wait_gone()
    client.close()


@pytest.fixture(scope="module")
async def supervisor(module_isolation: object, anyio_backend: str) -> AsyncIterator[SupervisorClient]:
    """A supervisor that the tests of a module share."""
    client = await SupervisorClient.connect()
    yield client
    await end_supervisor(client)


@pytest.fixture
async def own_supervisor(anyio_backend: str) -> AsyncIterator[SupervisorClient]:
    """A supervisor for one test that harms it."""
    client = await SupervisorClient.connect()
    yield client
    await end_supervisor(client)


@pytest.fixture
def policy() -> Callable[..., Policy]:
    """Make a policy from a shipped one: ``policy("default", cell_seconds=1.0, checkpoint="strict")``."""

    def make(name: str = "default", *, checkpoint: str | None = None, **limits: object) -> Policy:
        made = load_policy(name)
        if limits:
            made = replace(made, limits=replace(made.limits, **limits))
        return made if checkpoint is None else replace(made, checkpoint=checkpoint)

    return make


@pytest.fixture
def told(tmp_path: Path) -> Signal:
    """Give what a cell can wait for, in the workspace of the test's kernels."""
    return Signal(tmp_path / "go")


@pytest.fixture
async def spawn(supervisor: SupervisorClient, tmp_path: Path) -> AsyncIterator[Spawn]:
    """Start a kernel with some policy; it ends with the test."""
    started: list[KernelInfo] = []

    async def start(given: Policy | None = None, **options: object) -> KernelInfo:
        request = SpawnRequest(uuid.uuid4().hex[:12], str(tmp_path), **options)
        started.append(await supervisor.spawn(request, given or load_policy("default")))
        return started[-1]

    yield start
    for info in started:
        with contextlib.suppress(UnknownKernel):
            await supervisor.shutdown(info.kernel_id)


@pytest.fixture
async def kernel(spawn: Spawn) -> KernelInfo:
    """A kernel under the default policy."""
    return await spawn()


@pytest.fixture
def value(supervisor: SupervisorClient) -> Callable[[KernelInfo, str], Awaitable[str]]:
    """Run code in a kernel and give what its last expression showed; an error fails the test."""

    async def run(kernel: KernelInfo, code: str) -> str:
        async with asyncio.timeout(SECONDS):
            result = await supervisor.execute(kernel.kernel_id, code).result()
        assert result.error is None, result.error
        return result.result

    return run


@pytest.fixture
def load(supervisor: SupervisorClient, tmp_path: Path) -> Callable[..., Awaitable[None]]:
    """Load a text into a kernel, as ``log`` unless the test names it, with some metadata."""
    store = ContextStore(tmp_path / "store")

    async def bind(kernel: KernelInfo, text: str, name: str = "log", **metadata: str) -> None:
        with store.shared_text(store.put_text(text)) as shared_text:
            await supervisor.bind(kernel.kernel_id, name, shared_text, "log", metadata)

    return bind


@pytest.fixture
def run(supervisor: SupervisorClient, kernel: KernelInfo) -> Run:
    """Run a cell in `kernel`."""

    async def execute(code: str) -> CellResult:
        async with asyncio.timeout(SECONDS):
            return await supervisor.execute(kernel.kernel_id, code).result()

    return execute
