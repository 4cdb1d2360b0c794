"""``rlm-kernel upgrade``: switch running sessions to this version."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from rlm_ipc import discovery, worker_protocol
from rlm_ipc import supervisor_core as core
from rlm_ipc.daemon_connection import DaemonConnection, start_daemon
from rlm_ipc.daemon_requests import StopDaemon
from rlm_ipc.errors import DaemonUnavailable, KernelError, SupervisorGone
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import plain
from rlm_ipc.version import VERSION
from rlm_mcp.cli.output import JsonFlag, console, show, tell

if TYPE_CHECKING:
    from rlm_kernel.blocking_client import BlockingClient

GOES_ON = "keeps running"
COMES_BACK = "is saved, and restored when it is used"
WAITS = "is saved when its cell has ended or, after {:g} s, was stopped; its next answer names what is lost"
LOST = "is lost: {}"
FRONT_END = "a front end started it, so no other kernel can take it over"


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to a session, and which parts of it are lost."""

    session: str
    state: str
    what: str
    lost: tuple[core.NotSaved, ...] = ()


@dataclass(frozen=True, slots=True)
class Upgraded:
    """This version, the version of the running supervisor, and what happens to its sessions."""

    version: str
    supervisor: str | None
    sessions: tuple[Fate, ...]
    lost: bool
    done: bool


def upgrade(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only show what would happen to each session. Exit code 1: something would be lost."
        ),
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Continue even if something would be lost.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Switch running sessions, including running cells, to this version of rlm-kernel.

    Example: `rlm-kernel upgrade --check`
    """
    client = connected()
    if client is None:
        nothing = Upgraded(VERSION, None, (), lost=False, done=False)
        show(plain(nothing), as_json, lambda: console.print("nothing is running"))
        return
    fates = tuple(_fate(client, kernel) for kernel in kernels_of(client))
    lost = any(fate.lost for fate in fates)
    proceed = not check and (anyway or not lost)
    if proceed:
        _take_over(client)
    result = Upgraded(VERSION, client.welcome.version, fates, lost, proceed)
    show(plain(result), as_json, lambda: _print(result, check))
    if lost and not proceed:
        raise typer.Exit(1)


def connected(seconds: float | None = None) -> BlockingClient | None:
    """Connect to the supervisor; None if there is none. With ``seconds``, one that hangs counts as gone after them."""
    from rlm_kernel.blocking_client import BlockingClient

    sock = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    if sock is None:
        return None
    sock.settimeout(seconds)
    return BlockingClient(sock)


def kernels_of(client: BlockingClient) -> list[core.CoreKernel]:
    """List the kernels of a supervisor, in the order of their sessions' names."""
    from rlm_ipc import supervisor_protocol as protocol

    kernels = client.call(protocol.LIST_ALL, core.ListAll()).kernels
    return sorted(kernels, key=lambda kernel: str(kernel.label.get("session", kernel.kernel_id)))


def _fate(client: BlockingClient, kernel: core.CoreKernel) -> Fate:
    from rlm_ipc import supervisor_protocol as protocol

    session = str(kernel.label.get("session", kernel.kernel_id))
    if worker_protocol.SPEAKS.has(kernel.protocol):
        return Fate(session, kernel.state, GOES_ON)
    if kernel.owned:
        return Fate(session, kernel.state, LOST.format(FRONT_END), (core.NotSaved("(variables)", FRONT_END),))
    if kernel.comes_back and kernel.state != core.KernelState.IDLE:
        return Fate(session, kernel.state, WAITS.format(core.HandOver((), worker_protocol.SPEAKS).seconds))
    try:
        tried = client.call(protocol.SAVE, core.CoreSave(kernel.kernel_id))
    except SupervisorGone:
        raise
    except KernelError as error:
        tried = core.CoreSaved((), (), str(error))
    if tried.failure:
        everything = core.NotSaved("(variables)", tried.failure)
        return Fate(session, kernel.state, LOST.format(tried.failure), (everything,))
    return Fate(session, kernel.state, COMES_BACK, tried.lost)


def _take_over(client: BlockingClient) -> None:
    from rlm_ipc import supervisor_protocol as protocol
    from rlm_kernel.supervisor_start import program

    with suppress(DaemonUnavailable), DaemonConnection(StopDaemon()) as control:
        control.wait_for_end()
    path = discovery.runtime_dir() / "supervisor.sock"
    client.call(protocol.HAND_OVER, core.HandOver(tuple(program(path)), worker_protocol.SPEAKS))
    client.wait_gone()
    start_daemon().close()


def _print(result: Upgraded, check: bool) -> None:
    for fate in result.sessions:
        tell(f"{fate.session}: {fate.what}")
        for item in fate.lost:
            tell(f"  without {item.name}: {item.reason}")
    if result.done:
        console.print(f"rlm-kernel {result.version} has replaced {result.supervisor}")
    elif not check:
        console.print("nothing was changed; save what you need, or use --anyway")
    elif not result.lost:
        console.print("nothing would be lost")
