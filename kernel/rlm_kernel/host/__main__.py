"""``python -P -m rlm_kernel.host --socket PATH``: the host process, started on demand by `rendezvous`."""

from __future__ import annotations

import argparse
import asyncio
import signal
from contextlib import suppress
from pathlib import Path

from rlm_kernel import process, rendezvous
from rlm_kernel.host import leftovers
from rlm_kernel.host.control import Control
from rlm_kernel.host.host import Host

IDLE_SECONDS = 60.0


async def _serve(path: str, log: Path, ready: int | None, idle_seconds: float, claim: rendezvous.Claim) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = Path(path).parent
    cleaning = asyncio.create_task(asyncio.to_thread(leftovers.remove, leftovers.find(runtime)))
    host = Host(runtime, log)
    control = Control(host, path)
    host.emit = control.emit
    await host.start()
    rendezvous.announce_ready(ready)
    process.settle()
    used = loop.time()
    while not stop.is_set() and loop.time() - used < idle_seconds:
        if host.sessions or control.connections:
            used = loop.time()
        try:
            await asyncio.wait_for(stop.wait(), min(1.0, idle_seconds))
        except TimeoutError:
            if not _still_the_host(claim, control):
                break
    control.close()
    host.close()
    await cleaning
    if claim.stands():
        leftovers.remove(leftovers.find(runtime))


def _still_the_host(claim: rendezvous.Claim, control: Control) -> bool:
    """Look after the runtime folder: if somebody has deleted it, make it again; False if another host did."""
    stands = claim.stands()
    if stands and Path(control.path).exists():
        return True
    try:
        if not stands and not claim.renew():
            return False
        control.listen()
    except (OSError, rendezvous.RendezvousError):
        pass  # a full disk, perhaps: tried again in a second, and kernels go on meanwhile
    return True


def main() -> None:
    """Serve until told to stop, or until nobody has needed the host for a while."""
    options = argparse.ArgumentParser(prog="rlm_kernel.host")
    options.add_argument("--socket", required=True)
    options.add_argument("--log", required=True, type=Path)
    options.add_argument("--ready-fd", type=int)
    options.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    given = options.parse_args()
    rendezvous.detach()
    with suppress(rendezvous.AlreadyServed), rendezvous.claim_to_serve(given.socket, given.ready_fd) as claim:
        asyncio.run(_serve(given.socket, given.log, given.ready_fd, given.idle_seconds, claim))


if __name__ == "__main__":
    main()
