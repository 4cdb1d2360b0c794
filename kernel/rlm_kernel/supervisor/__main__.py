"""``python -P -m rlm_kernel.supervisor --socket PATH``: the supervisor process, started on demand by `discovery`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from rlm_ipc import discovery, processes, stale_files
from rlm_kernel.supervisor.keeping.keeping import Keeping, await_turn, end_keeper, stand_by, start_under_keeper
from rlm_kernel.supervisor.server import ControlServer
from rlm_kernel.supervisor.supervisor import Supervisor

IDLE_SECONDS = 60.0


async def _serve(
    path: str, log: Path, ready: int | None, idle_seconds: float, claim: discovery.InstanceLock, keeping: Keeping
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = Path(path).parent
    # The kernels of another supervisor need these files.
    stale = stale_files.find(runtime) if keeping.generation == 1 else []
    cleaning = asyncio.create_task(asyncio.to_thread(stale_files.remove, stale))
    supervisor = Supervisor(runtime, log, keeping)
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


def main() -> None:
    """Serve until told to stop, or until nobody has needed the supervisor for a while."""
    options = argparse.ArgumentParser(prog="rlm_kernel.supervisor")
    options.add_argument("--socket", required=True)
    options.add_argument("--log", required=True, type=Path)
    options.add_argument("--ready-fd", type=int)
    options.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    options.add_argument("--keeper-fd", type=int)
    options.add_argument("--generation", type=int, default=1)
    options.add_argument("--standby-fd", type=int)
    arguments = options.parse_args()
    with suppress(discovery.AlreadyServed):
        if arguments.standby_fd is not None:
            os.set_inheritable(arguments.standby_fd, False)
            (line, generation), claim = await_turn(socket.socket(fileno=arguments.standby_fd)), None
        elif arguments.keeper_fd is None:
            discovery.detach()
            claim = discovery.claim_to_serve(arguments.socket, arguments.ready_fd)
            line, generation = start_under_keeper(arguments.ready_fd), 1
        else:
            os.set_inheritable(arguments.keeper_fd, False)
            line, generation, claim = socket.socket(fileno=arguments.keeper_fd), arguments.generation, None
        while isinstance(standby := stand_by(partial(_let_go, line, claim, arguments.ready_fd)), tuple):
            (line, generation), claim, arguments.ready_fd = standby, None, None
        with claim or _next_claim(arguments.socket, line) as claim:
            keeping = Keeping(line, generation, _program(arguments.socket, arguments.log, arguments.idle_seconds))
            keeping.follows(standby)
            asyncio.run(
                _serve(arguments.socket, arguments.log, arguments.ready_fd, arguments.idle_seconds, claim, keeping)
            )


def _let_go(line: socket.socket, claim: discovery.InstanceLock | None, ready: int | None) -> None:
    line.close()
    if claim is not None:
        claim.release()
    if ready is not None:
        os.close(ready)


def _next_claim(path: str, line: socket.socket) -> discovery.InstanceLock:
    """Take the place of the previous supervisor."""
    try:
        return discovery.claim(path)
    except discovery.DiscoveryError:  # someone has removed the files, and another supervisor serves
        end_keeper(line)
        raise


def _program(path: str, log: Path, idle_seconds: float) -> list[str]:
    """Return the command of the next supervisor."""
    argv = [sys.executable, "-P", "-X", "no_debug_ranges", "-m", "rlm_kernel.supervisor"]
    return [*argv, "--socket", path, "--log", str(log), "--idle-seconds", str(idle_seconds)]


if __name__ == "__main__":
    main()
