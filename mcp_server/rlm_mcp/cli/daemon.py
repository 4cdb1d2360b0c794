"""``rlm-kernel daemon start|stop|status`` and ``rlm-kernel serve``."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Annotated, Any

import typer

from rlm_kernel import rendezvous
from rlm_kernel.connection import Control, is_running, start_daemon
from rlm_kernel.errors import DaemonUnavailable
from rlm_kernel.folders import remove_folder
from rlm_kernel.host import leftovers
from rlm_kernel.link import IDLE_SECONDS
from rlm_mcp.cli.output import NO_DAEMON, JsonFlag, console, fail, failing, show, until_interrupted

__all__ = ["app", "serve"]

STOP_SECONDS = 20.0

app = typer.Typer(help="The process that all clients of this user share.", no_args_is_help=True)


@app.command()
@failing
def start(
    idle: Annotated[
        float, typer.Option(min=1.0, help="Seconds that it stays when nobody is connected.")
    ] = IDLE_SECONDS,
    as_json: JsonFlag = False,
) -> None:
    """Start the daemon, unless it runs. Clients do this by themselves."""
    start_daemon("--idle", str(idle)).close()
    with Control("status") as control:
        state = _state(control.reply)
    show(state, as_json, lambda: console.print(f"the daemon runs (process {state['pid']})"))


@app.command()
@failing
def stop(
    everything: Annotated[
        bool, typer.Option("--all", help="End the kernel host too: every kernel and its variables.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Stop the daemon. Connected clients start a new one when they need it; kernels go on without it."""
    if everything and end_host() and not as_json:
        console.print("ended the kernel host, and every kernel with it")
    try:
        with Control("stop") as control:
            pid = control.reply["pid"]
            control.wait_for_end()
    except DaemonUnavailable:
        show({"stopped": False}, as_json, lambda: console.print("no daemon is running"))
        return
    deadline = time.monotonic() + STOP_SECONDS
    while is_running():
        if time.monotonic() > deadline:
            fail(f"process {pid} still has not ended; end it with: kill -9 {pid}", NO_DAEMON, as_json=as_json)
        time.sleep(0.02)
    show({"stopped": True, "pid": pid}, as_json, lambda: console.print(f"stopped process {pid}"))


def end_host() -> bool:
    """End the kernel host of this user, wait until it has gone, and remove what it leaves; false if there is none."""
    path = rendezvous.runtime_dir() / "host.sock"
    host = rendezvous.connect(path)
    if host is not None:
        with host, suppress(ProcessLookupError, ConnectionError):
            host.settimeout(STOP_SECONDS)
            os.kill(rendezvous.peer(host).pid, signal.SIGTERM)
            while host.recv(4096):
                pass
    with suppress(rendezvous.RendezvousError), rendezvous.claim(path, seconds=STOP_SECONDS):
        # Nobody is the host, and nobody becomes it meanwhile.
        for name in leftovers.FOLDERS:
            remove_folder(path.with_name(name))
        path.unlink(missing_ok=True)
    return host is not None


@app.command()
@failing
def status(as_json: JsonFlag = False) -> None:
    """Tell whether the daemon runs, for how long and for how many clients. Exit code 3: it does not."""
    try:
        with Control("status") as control:
            state = _state(control.reply)
    except DaemonUnavailable as error:
        if as_json:
            show({"running": False}, as_json)
            raise typer.Exit(NO_DAEMON) from None
        fail(str(error), NO_DAEMON)
    show(state, as_json)


def _state(reply: dict[str, Any]) -> dict[str, Any]:
    return {"running": True, **{key: value for key, value in reply.items() if key not in {"rlm", "ok"}}}


@failing
def serve(
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8137,
    as_json: JsonFlag = False,
) -> None:
    """Serve streamable HTTP with a bearer token until interrupted, on the sessions of all clients."""
    with until_interrupted(), Control("http", start=True, host=host, port=port) as control:
        door = {key: control.reply[key] for key in ("url", "token_file", "pid")}
        show(door, as_json, lambda: _print_door(door))
        control.wait_for_end()
    fail("the daemon ended, and HTTP with it", NO_DAEMON, as_json=as_json)


def _print_door(door: dict[str, Any]) -> None:
    console.print(f"serving [bold]{door['url']}[/]")
    console.print(f"send the header  Authorization: Bearer $(cat '{door['token_file']}')")
    console.print("stop with Ctrl-C")
