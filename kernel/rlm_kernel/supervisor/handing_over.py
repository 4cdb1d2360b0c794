"""How a supervisor gives everything to another version of itself (`rlm_ipc.supervisor_core`).

It tells the keeper what to start next, and ends like one that has died: the next one adopts what is there. Kernels that
the other version cannot drive are saved and ended; the daemon restores their sessions in kernels of its own version.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection

from rlm_ipc import worker_protocol
from rlm_ipc.supervisor_core import CoreKernel, HandOver, KernelState
from rlm_kernel.supervisor.keeping.keeping import Keeping
from rlm_kernel.supervisor.session import SupervisedSession
from rlm_kernel.supervisor.unattended import Unattended

LEAVING_SECONDS = 0.1
"""Time until the end after a handover: its caller gets the answer first."""


def facts(session: SupervisedSession) -> CoreKernel:
    """Return what every version learns about a kernel."""
    busy = KernelState.IDLE if session.queue.cell is None else KernelState.BUSY
    return CoreKernel(
        session.kernel_id,
        session.request.label,
        _protocol(session),
        KernelState.WAITING if session.wait.ids else busy,
        session.policy.reopen,
        session.request.owned or session.request.trusted,
    )


async def hand_over(
    sessions: Collection[SupervisedSession], unattended: Unattended, keeping: Keeping, call: HandOver
) -> None:
    """Hand the sessions over to another program; this process ends a moment later."""
    others = [session for session in sessions if not call.kernels.has(_protocol(session))]
    await asyncio.gather(*(_end_cell(session, call.seconds) for session in others))
    for session in others:  # one after the other: saving one takes memory
        await unattended.end(session)
    keeping.hand_over(call.program)
    asyncio.get_running_loop().call_later(LEAVING_SECONDS, os._exit, 0)


def _protocol(session: SupervisedSession) -> int:
    """Return the version of the messages of its processes."""
    return worker_protocol.PROTOCOL if session.processes.live is None else session.processes.live.protocol


async def _end_cell(session: SupervisedSession, seconds: float) -> None:
    """Wait until nothing runs; what still runs after that time is ended."""
    free = session.queue.operation(_nothing)
    while not (await asyncio.wait({free}, timeout=seconds))[0]:
        session.interrupt(escalate=True)


async def _nothing() -> None:
    """Do nothing; used by callers that only wait for their turn."""
