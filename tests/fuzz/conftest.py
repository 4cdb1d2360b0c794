"""How many examples the fuzz tests try: a few that are always the same, or `FUZZ_EXAMPLES` new ones (`make fuzz`)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from waiting import SECONDS

from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy
from rlm_sandbox.policy.model import LanguagePolicy, WallPolicy

_EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
_SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]

for name, always in (("fuzz", 100), ("fuzz with processes", 12)):
    settings.register_profile(
        name,
        derandomize=not _EXAMPLES,
        database=None,
        deadline=None,
        max_examples=max(1, _EXAMPLES * always // 100) if _EXAMPLES else always,
        phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if _EXAMPLES else [])],
        suppress_health_check=_SLOW,
    )


@pytest.fixture(scope="module")
async def supervisor(module_isolation: object, anyio_backend: str) -> AsyncIterator[SupervisorClient]:
    """A supervisor that the tests of a module share."""
    client = await SupervisorClient.connect()
    yield client
    if client.alive and client.pid is not None:
        os.kill(client.pid, signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            await client.wait_gone()
    client.close()


@pytest.fixture(scope="module")
async def bystander(supervisor: SupervisorClient, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A kernel that does no harm and holds a variable ``kept``."""
    folder: Path = tmp_path_factory.mktemp("bystander")
    info = await supervisor.spawn(SpawnRequest("bystander", str(folder)), load_policy("default"))
    await supervisor.execute(info.kernel_id, "kept = 'kept'").result()
    return info.kernel_id


@pytest.fixture(scope="module")
async def hostile(supervisor: SupervisorClient, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A kernel without a language wall."""
    folder: Path = tmp_path_factory.mktemp("hostile")
    policy = replace(load_policy("default"), language=LanguagePolicy(wall="off"), walls=WallPolicy())
    return (await supervisor.spawn(SpawnRequest("hostile", str(folder)), policy)).kernel_id
