"""``rlm-kernel daemon start|stop|status`` and ``rlm-kernel serve``."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Annotated

import typer

from rlm_ipc.daemon_connection import DaemonConnection, is_running, start_daemon
from rlm_ipc.daemon_requests import HttpServed, ServeHttp, ShowStatus, StopDaemon
from rlm_ipc.errors import DaemonUnavailable, KernelError
from rlm_ipc.json_lines import IDLE_SECONDS
from rlm_ipc.messages import JsonObject, plain
from rlm_ipc.supervisor_end import end_supervisor
from rlm_mcp.cli.output import NO_DAEMON, Commands, JsonFlag, console, counted, fail, show, until_interrupted
from rlm_mcp.cli.upgrade import connected, kernels_of

STOP_SECONDS = 20.0
COUNT_SECONDS = 2.0
"""How long a supervisor has to say how many kernels it has; one that hangs is to be stopped, too."""

app = Commands(help="Manage the daemon, the process that all your clients share.", no_args_is_help=True)


@app.command()
def start(
    idle: Annotated[
        float | None,
        typer.Option(min=1.0, help=f"Exit after this many seconds without a client (default: {IDLE_SECONDS:g})."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Start the daemon if it is not running. Clients do this automatically.

    Example: `rlm-kernel daemon start`
    """
    start_daemon("--idle", str(IDLE_SECONDS if idle is None else idle)).close()
    state = _state()
    message = f"the daemon is running (process {state['pid']})"
    if idle is not None and state["idle_seconds"] != idle:
        message += f", and keeps its idle time of {state['idle_seconds']:g} s; to change it: rlm-kernel daemon stop"
    show(state, as_json, lambda: console.print(message))


@app.command()
def stop(
    everything: Annotated[
        bool, typer.Option("--all", help="Also end every kernel; variables that cannot be saved are lost.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt (never shown without a terminal).")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Stop the daemon. Kernels keep running, and clients start a new daemon when they need it.

    Example: `rlm-kernel daemon stop`
    """
    from rlm_kernel.jupyter import kernelspecs

    asks = everything and not yes and sys.stdin.isatty()
    kernels = _kernels() if asks or not everything else 0
    if asks and kernels != 0:
        which = "every kernel" if kernels is None else counted(kernels, "kernel")
        ends = f"End {which}? Running code stops, and variables that cannot be saved are lost."
        typer.confirm(ends, abort=True, err=True)
    pid = _stop_daemon(as_json)
    lines = ["no daemon is running" if pid is None else f"stopped process {pid}"]
    if everything:
        # Only now: a daemon would start another supervisor for a client that calls meanwhile.
        if end_supervisor(STOP_SECONDS):
            lines.append("ended the supervisor and every kernel")
        for attachment, folder in kernelspecs.published():
            kernelspecs.withdraw(attachment, folder)
    elif kernels:
        stays = counted(kernels, "kernel keeps", "kernels keep")
        lines.append(f"{stays} running; to end every kernel: rlm-kernel daemon stop --all")
    state: JsonObject = {"stopped": False} if pid is None else {"stopped": True, "pid": pid}
    show(state, as_json, lambda: print("\n".join(lines)))


def _kernels() -> int | None:
    """Count the kernels of the supervisor, which outlives the daemon; None if it does not tell."""
    try:
        client = connected(COUNT_SECONDS)
        if client is None:
            return 0
        with closing(client):
            return len(kernels_of(client))
    except KernelError:
        return None


def _stop_daemon(as_json: bool) -> int | None:
    """Stop the daemon, and wait for its end; returns its process, None if there was none."""
    try:
        with DaemonConnection(StopDaemon()) as control:
            control.wait_for_end()
    except DaemonUnavailable:
        return None
    deadline = time.monotonic() + STOP_SECONDS
    while is_running():
        if time.monotonic() > deadline:
            pid = control.pid
            message = f"process {pid} has not ended after {STOP_SECONDS:g} s; end it with: kill -9 {pid}"
            fail(message, NO_DAEMON, as_json=as_json)
        time.sleep(0.02)
    return control.pid


@app.command()
def status(as_json: JsonFlag = False) -> None:
    """Show whether the daemon is running, its uptime and its number of clients. Exit code 3: it is not running.

    Example: `rlm-kernel daemon status`
    """
    try:
        state = _state()
    except DaemonUnavailable as error:
        if as_json:
            show({"running": False}, as_json)
            raise typer.Exit(NO_DAEMON) from None
        fail(str(error), NO_DAEMON)
    show(state, as_json)


def _state() -> JsonObject:
    """Return the daemon's report; raises DaemonUnavailable if it is not running."""
    with DaemonConnection(ShowStatus()) as control:
        return {"running": True, "version": control.version, "pid": control.pid, **plain(control.reply)}


def serve(
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free one.")] = 8137,
    as_json: JsonFlag = False,
) -> None:
    """Serve MCP over streamable HTTP with a bearer token, until interrupted.

    Example: `rlm-kernel serve`
    """
    with until_interrupted(), DaemonConnection(ServeHttp(host, port), start=True) as control:
        served = control.reply
        show({**plain(served), "pid": control.pid}, as_json, lambda: _print_endpoint(served))
        control.wait_for_end()
    fail("the daemon ended, so HTTP is no longer served; run the command again", NO_DAEMON, as_json=as_json)


def _print_endpoint(served: HttpServed) -> None:
    console.print(f"serving [bold]{served.url}[/]")
    console.print(f"send the header  Authorization: Bearer $(cat '{served.token_file}')")
    console.print("press Ctrl-C to stop")
