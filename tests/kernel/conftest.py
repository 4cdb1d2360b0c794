"""Real hosts and kernels for the tests of this folder."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rlm_kernel.hostclient import CellResult, HostClient, KernelInfo, SpawnRequest
from rlm_sandbox.policy import Policy, load_policy

Spawn = Callable[..., Awaitable[KernelInfo]]
Run = Callable[[str], Awaitable[CellResult]]


async def end_host(client: HostClient) -> None:
    """Stop the host and wait until it is gone."""
    if client.alive and client.pid is not None:
        os.kill(client.pid, signal.SIGTERM)
        async with asyncio.timeout(10):
            await client.wait_gone()
    client.close()


@pytest.fixture(scope="module")
async def host(module_isolation: object, anyio_backend: str) -> AsyncIterator[HostClient]:
    """A kernel host that the tests of a module share."""
    client = await HostClient.connect()
    yield client
    await end_host(client)


@pytest.fixture
async def own_host(anyio_backend: str) -> AsyncIterator[HostClient]:
    """A kernel host for one test that harms it."""
    client = await HostClient.connect()
    yield client
    await end_host(client)


@pytest.fixture
def policy() -> Callable[..., Policy]:
    """Make a policy from a shipped one: ``policy("default", cell_seconds=1.0, checkpoint="strict")``."""

    def make(name: str = "default", *, checkpoint: str | None = None, **limits: object) -> Policy:
        made = load_policy(name)
        if limits:
            made = made.model_copy(update={"limits": made.limits.model_copy(update=limits)})
        return made if checkpoint is None else made.model_copy(update={"checkpoint": checkpoint})

    return make


@pytest.fixture
def spawn(host: HostClient, tmp_path: Path) -> Spawn:
    """Start a kernel with some policy."""

    async def start(given: Policy | None = None, **options: object) -> KernelInfo:
        request = SpawnRequest(uuid.uuid4().hex[:12], given or load_policy("default"), str(tmp_path), **options)
        return await host.spawn(request)

    return start


@pytest.fixture
async def kernel(host: HostClient, spawn: Spawn) -> AsyncIterator[KernelInfo]:
    """A kernel under the default policy."""
    info = await spawn()
    yield info
    await host.shutdown(info.kernel_id)


@pytest.fixture
def run(host: HostClient, kernel: KernelInfo) -> Run:
    """Run a cell in `kernel`."""

    async def execute(code: str) -> CellResult:
        async with asyncio.timeout(30):
            return await host.execute(kernel.kernel_id, code).result()

    return execute
