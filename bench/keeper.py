"""What the keeper needs: with one session, and with as many as `SESSIONS`. Counted is the proportional set size (PSS).

It is the process that is never to die, so it must stay small. Needs Linux.
"""

import asyncio

import psutil
from apart import folders, pss_of

from rlm_ipc.supervisor_protocol import SpawnRequest
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_sandbox.policy import load_policy

SESSIONS = 100
TARGETS_MB = {1: 4.0, SESSIONS: 6.0}


async def measure(workspace: str) -> None:
    """Start sessions, each of which runs two cells, and print what the keeper needs."""
    client, policy = await SupervisorClient.connect(), load_policy("default")
    supervisor = psutil.Process(client.pid)
    keeper = supervisor.parent()
    assert keeper is not None
    assert any(word.endswith("keeper.py") for word in keeper.cmdline())
    for number in range(1, SESSIONS + 1):
        info = await client.spawn(SpawnRequest(f"s{number}", workspace), policy)
        for _ in range(2):
            await client.execute(info.kernel_id, "x = 1").result()
        if number in TARGETS_MB:
            pss = pss_of(keeper) / 1e6
            verdict = "met" if pss <= TARGETS_MB[number] else "NOT met"
            target = f"target {TARGETS_MB[number]:.0f}: {verdict}"
            print(f"the keeper with {number} session(s): {pss:.2f} MB PSS ({target}); {keeper.num_fds()} descriptors")
    client.close()


def main() -> None:
    """Measure in folders of their own."""
    with folders() as root:
        asyncio.run(measure(str(root)))


if __name__ == "__main__":
    main()
