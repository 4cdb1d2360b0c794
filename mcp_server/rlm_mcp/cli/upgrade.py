"""``rlm-kernel upgrade``: let this version go on with the sessions of another one that runs."""

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

GOES_ON = "goes on"
COMES_BACK = "is saved, and comes back when it is used"
WAITS = "is saved when its cell has ended, or is stopped after {:g} s; its next answer names what could not be saved"
LOST = "is lost: {}"
FRONT_END = "a front end has started it, and it cannot be given to another kernel"


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a session, and what of it is lost."""

    session: str
    state: str
    what: str
    lost: tuple[core.NotSaved, ...] = ()


@dataclass(frozen=True, slots=True)
class Upgraded:
    """This version, that of the supervisor that ran, what becomes of its sessions, and whether that was done."""

    version: str
    supervisor: str | None
    sessions: tuple[Fate, ...]
    lost: bool
    done: bool


def upgrade(
    check: Annotated[
        bool,
        typer.Option("--check", help="Only say what would become of each session. Exit code 1: there is a loss."),
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Go on though something is lost.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Let this version take over from another one that runs, with its sessions and running cells."""
    client = _connected()
    if client is None:
        nothing = Upgraded(VERSION, None, (), lost=False, done=False)
        show(plain(nothing), as_json, lambda: console.print("nothing runs"))
        return
    fates = tuple(_fate(client, kernel) for kernel in _kernels(client))
    lost = any(fate.lost for fate in fates)
    does = not check and (anyway or not lost)
    if does:
        _take_over(client)
    told = Upgraded(VERSION, client.welcome.version, fates, lost, does)
    show(plain(told), as_json, lambda: _print(told, check))
    if lost and not does:
        raise typer.Exit(1)


def _connected() -> BlockingClient | None:
    from rlm_kernel.blocking_client import BlockingClient

    sock = discovery.connect(discovery.runtime_dir() / "supervisor.sock")
    return None if sock is None else BlockingClient(sock)


def _kernels(client: BlockingClient) -> list[core.CoreKernel]:
    from rlm_ipc import supervisor_protocol as protocol

    found = client.call(protocol.LIST_ALL, core.ListAll()).kernels
    return sorted(found, key=lambda kernel: str(kernel.label.get("session", kernel.kernel_id)))


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


def _print(told: Upgraded, check: bool) -> None:
    for fate in told.sessions:
        tell(f"{fate.session}: {fate.what}")
        for item in fate.lost:
            tell(f"  without {item.name}: {item.reason}")
    if told.done:
        console.print(f"rlm-kernel {told.version} goes on for {told.supervisor}")
    elif not check:
        console.print("nothing was changed; save what you need, or say --anyway")
    elif not told.lost:
        console.print("nothing would be lost")
