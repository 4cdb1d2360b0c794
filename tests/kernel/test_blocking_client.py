"""The connection of callers without an event loop, while one supervisor takes the place of another."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from supervisor_listener import SupervisorListener

from rlm_ipc import discovery
from rlm_ipc import supervisor_protocol as protocol
from rlm_ipc.errors import SupervisorGone
from rlm_ipc.supervisor_protocol import Done, OfKernel
from rlm_kernel.blocking_client import BlockingClient

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(listener: SupervisorListener) -> AsyncIterator[BlockingClient]:
    """Connect to the first supervisor."""
    path = discovery.runtime_dir() / "supervisor.sock"
    sock = discovery.connect(path)
    assert sock is not None
    connecting = asyncio.create_task(asyncio.to_thread(BlockingClient, sock, path))
    await listener.accept()
    listener.greet()
    client = await connecting
    yield client
    client.close()


def _call(client: BlockingClient, operation: protocol.Operation[OfKernel, Done]) -> "asyncio.Task[Done]":
    return asyncio.create_task(asyncio.to_thread(client.call, operation, OfKernel("k")))


async def test_a_call_outlives_several_supervisors(client: BlockingClient, listener: SupervisorListener) -> None:
    """Each of them dies with the call; the client tells who serves at last."""
    waiting = _call(client, protocol.RESTART)
    for _ in range(3):
        await listener.hear("restart")
        listener.die()
        await listener.accept()
        listener.greet()
    await listener.done("restart")
    assert await waiting == Done()
    assert client.welcome.pid == 4


async def test_a_supervisor_that_hangs_up_and_lives_is_not_called_again(
    client: BlockingClient, listener: SupervisorListener
) -> None:
    """It has its reason: it would be called without end."""
    waiting = _call(client, protocol.RESTART)
    await listener.hear("restart")
    listener.die()
    await listener.accept()
    listener.greet(again=True)
    with pytest.raises(SupervisorGone):
        await waiting
    assert await listener.hung_up()
