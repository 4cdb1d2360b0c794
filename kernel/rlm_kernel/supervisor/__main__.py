"""``python -P -m rlm_kernel.supervisor --socket PATH``: the supervisor process, started on demand by `discovery`."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from rlm_ipc import discovery, processes, stale_files
from rlm_kernel.supervisor.server import ControlServer
from rlm_kernel.supervisor.supervisor import Supervisor

IDLE_SECONDS = 60.0


async def _serve(path: str, log: Path, ready: int | None, idle_seconds: float, claim: discovery.InstanceLock) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = Path(path).parent
    cleaning = asyncio.create_task(asyncio.to_thread(stale_files.remove, stale_files.find(runtime)))
    supervisor = Supervisor(runtime, log)
    control = ControlServer(supervisor, path)
    await supervisor.start()
    discovery.announce_ready(ready)
    processes.finish_startup()
    used = loop.time()
    while not stop.is_set() and loop.time() - used < idle_seconds:
        if supervisor.sessions or control.connections:
            used = loop.time()
        try:
            await asyncio.wait_for(stop.wait(), min(1.0, idle_seconds))
        except TimeoutError:
            if not _still_the_supervisor(claim, control):
                break
    control.close()
    supervisor.close()
    await cleaning
    if claim.stands():
        stale_files.remove(stale_files.find(runtime))


def _still_the_supervisor(claim: discovery.InstanceLock, control: ControlServer) -> bool:
    """Restore the runtime folder if somebody has deleted it; False if another supervisor has taken our place.

    Systems clean up temporary folders while we run. A socket whose file is gone cannot be reached any more.
    """
    stands = claim.stands()
    if stands and Path(control.path).exists():
        return True
    try:
        if not stands and not claim.renew():
            return False
        control.listen()
    except (OSError, discovery.DiscoveryError):
        pass  # perhaps a full disk: it is tried again in a second, and kernels go on meanwhile
    return True


def main() -> None:
    """Serve until told to stop, or until nobody has needed the supervisor for a while."""
    options = argparse.ArgumentParser(prog="rlm_kernel.supervisor")
    options.add_argument("--socket", required=True)
    options.add_argument("--log", required=True, type=Path)
    options.add_argument("--ready-fd", type=int)
    options.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    given = options.parse_args()
    discovery.detach()
    with suppress(discovery.AlreadyServed), discovery.claim_to_serve(given.socket, given.ready_fd) as claim:
        asyncio.run(_serve(given.socket, given.log, given.ready_fd, given.idle_seconds, claim))


if __name__ == "__main__":
    main()
