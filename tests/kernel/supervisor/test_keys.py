"""The key of a session's connection is the supervisor's alone.

It signs what a kernel says and checks what clients ask.
"""

import asyncio
import os

import pytest
from jupyter_client import AsyncKernelClient
from jupyter_visits import visit
from session_processes import copies_of

from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_sandbox.policy import load_policy

pytestmark = pytest.mark.anyio


def memory_holds(pid: int, *wanted: bytes) -> list[bool]:
    """Which of these bytes are anywhere in what a process may read of its memory."""
    found = [False] * len(wanted)
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            addresses, rights, *_ = line.split()
            start, end = (int(address, 16) for address in addresses.split("-"))
            if "r" not in rights or "[v" in line:  # vvar and vsyscall cannot be read
                continue
            memory.seek(start)
            held = memory.read(end - start)
            found = [before or needle in held for before, needle in zip(found, wanted, strict=True)]
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="only root may read the memory of a helper process")
async def test_no_process_of_a_session_holds_its_key(supervisor, kernel, tmp_path) -> None:
    """Who has it can run cells of the session over TCP: a live kernel, its copies and a fork, after Jupyter's cells."""
    key = kernel.connection["key"].encode()
    async with visit(kernel.connection) as client:
        await client.execute_interactive("marker = 'in the memory of ' + 'the kernel'", timeout=60)
        await client.execute_interactive("print(marker)", timeout=60)
    fork = await supervisor.fork(kernel.kernel_id, SpawnRequest("keys-fork", str(tmp_path)), load_policy("default"))
    assert (await supervisor.execute("keys-fork", "marker").result()).result == "'in the memory of the kernel'"
    keys = [key, fork.kernel.connection["key"].encode()]
    assert all(memory_holds(supervisor.pid, *keys))
    assert kernel.pid is not None
    assert fork.kernel.pid is not None
    for pid in (kernel.pid, fork.kernel.pid, *copies_of(kernel.pid), *copies_of(fork.kernel.pid)):
        assert memory_holds(pid, b"in the memory of the kernel", *keys) == [True, False, False]
    await supervisor.shutdown("keys-fork")


async def test_what_is_not_signed_with_the_key_is_not_run(supervisor, kernel) -> None:
    """The kernel cannot tell any more; on each channel, and a second time."""
    async with visit(kernel.connection) as honest:
        forger = AsyncKernelClient()
        forger.load_connection_info({**kernel.connection, "key": b"a key of somebody else's"})
        forger.start_channels()
        await supervisor.execute(kernel.kernel_id, "runs = 0").result()
        forger.execute("runs += 1")
        message = honest.session.msg("execute_request", {"code": "runs += 10", "silent": False, "store_history": True})
        parts = honest.session.serialize(message)
        for _ in range(2):
            honest.shell_channel.socket.send_multipart(parts)
        control = forger.session.msg("execute_request", {"code": "runs += 100", "silent": False})
        forger.session.send(forger.control_channel.socket, control)
        async with asyncio.timeout(60):
            while (await supervisor.execute(kernel.kernel_id, "runs").result()).result == "0":
                pass
        reply = await honest.execute_interactive("runs", timeout=60)  # behind the second of the two
        assert reply["content"]["status"] == "ok"
        assert (await supervisor.execute(kernel.kernel_id, "runs").result()).result == "10"
        forger.stop_channels()
