"""The supervisor's process after its beginning: it serves, or waits to become the next supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from functools import partial
from pathlib import Path

from rlm_ipc import discovery, processes, stale_files
from rlm_kernel.supervisor.beginning import Beginning
from rlm_kernel.supervisor.keeping.keeping import Keeping, await_turn, end_keeper, stand_by
from rlm_kernel.supervisor.server import ControlServer
from rlm_kernel.supervisor.supervisor import Supervisor
from rlm_kernel.supervisor_start import program


def run(
    path: str,
    log: str,
    idle_seconds: float,
    ready: int | None,
    begun: Beginning | None,
    keeper: int | None,
    generation: int,
    standby: int | None,
) -> None:
    """Serve as the supervisor that has ``begun``, or as the one that ``keeper`` or ``standby`` makes the next."""
    if standby is not None:
        line, generation = await_turn(socket.socket(fileno=standby))
    else:
        line = begun.keeper if begun is not None else socket.socket(fileno=keeper)
    while isinstance(follower := stand_by(partial(_let_go, line, begun, ready)), tuple):
        (line, generation), begun, ready = follower, None, None
    with begun.claim if begun is not None else _next_claim(path, line) as claim:
        successor = [*program(path, log), "--idle-seconds", str(idle_seconds)]
        keeping = Keeping(line, generation, successor)
        keeping.follows(follower)
        asyncio.run(_serve(path, Path(log), ready, idle_seconds, claim, keeping, begun))


def _let_go(line: socket.socket, begun: Beginning | None, ready: int | None) -> None:
    line.close()
    if begun is not None:
        begun.zygote.close()
        begun.claim.release()
    if ready is not None:
        os.close(ready)


async def _serve(
    path: str,
    log: Path,
    ready: int | None,
    idle_seconds: float,
    claim: discovery.InstanceLock,
    keeping: Keeping,
    begun: Beginning | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = Path(path).parent
    # The kernels of another supervisor need these files.
    cleaning = asyncio.create_task(asyncio.to_thread(stale_files.remove, begun.stale if begun is not None else []))
    supervisor = Supervisor(runtime, log, keeping, begun.zygote if begun is not None else None)
    await supervisor.start()
    control = ControlServer(supervisor, path)
    keeping.serves()
    discovery.announce_ready(ready)
    processes.finish_startup()
    used = loop.time()
    while not stop.is_set():
        if supervisor.sessions or control.connections:
            used = loop.time()
        elif loop.time() - used >= idle_seconds:
            break
        try:
            await asyncio.wait_for(stop.wait(), min(1.0, idle_seconds))
        except TimeoutError:
            if not _still_the_supervisor(claim, control):
                break
    supervisor.close()
    control.close()
    await cleaning
    if claim.stands():
        stale_files.remove(stale_files.find(runtime))


def _still_the_supervisor(claim: discovery.InstanceLock, control: ControlServer) -> bool:
    """Restore the runtime folder if someone has deleted it. Return False if another supervisor has taken our place.

    Systems clean up temporary folders while we run. A socket without its file cannot be reached any more.
    """
    stands = claim.stands()
    if stands and Path(control.path).exists():
        return True
    try:
        if not stands and not claim.renew():
            return False
        control.listen()
    except (OSError, discovery.DiscoveryError):
        pass  # perhaps a full disk: retry in a second, while kernels keep running
    return True


def _next_claim(path: str, line: socket.socket) -> discovery.InstanceLock:
    """Take the place of the previous supervisor."""
    try:
        return discovery.claim(path)
    except discovery.DiscoveryError:  # someone has removed the files, and another supervisor serves
        end_keeper(line)
        raise
