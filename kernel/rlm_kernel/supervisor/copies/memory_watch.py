"""The supervisor's regular checks of a session: memory, threads, programs, files, copies.

The system itself enforces most limits (`rlm_sandbox.os_wall.rlimits`). These checks cover what it does not count.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rlm_ipc.outcomes import Ended
from rlm_kernel.supervisor.cells.limits import CellLimits, private_memory, proportional_memory, resident_memory
from rlm_kernel.supervisor.copies.checkpoints import Checkpoints
from rlm_kernel.supervisor.copies.kernel_processes import KernelProcesses
from rlm_kernel.supervisor.processes import other_threads
from rlm_kernel.supervisor.processes.proc_status import descendants_of
from rlm_kernel.supervisor.relay.output_router import OutputRouter
from rlm_sandbox.os_wall.folder_size import folder_bytes
from rlm_sandbox.policy.model import Limits
from rlm_sandbox.policy.sizes import MIB

SCRATCH_COUNTED = 16
ROOM_BYTES = 16 * MIB
"""How far a kernel may exceed its limit before it is killed.

RLIMIT_DATA stops it first, with a MemoryError that code can catch and react to: pages of the stack, which RLIMIT_DATA
does not count, must not get it killed instead.
"""


class MemoryWatch:
    """The watch over one session, which may use ``allowed``; the supervisor calls its methods.

    ``scratch`` is the folder that its code may write. ``base`` is the number of bytes that its process had before any
    cell.
    """

    def __init__(
        self,
        allowed: Limits,
        scratch: Path,
        processes: KernelProcesses,
        checkpoints: Checkpoints,
        relay: OutputRouter,
    ) -> None:
        self._allowed, self._folder = allowed, scratch
        self._processes, self._checkpoints, self._relay = processes, checkpoints, relay
        self.base = 0
        self._scratch_seen: tuple[CellLimits | None, int] = (None, 0)
        self._copies_seen = 0

    def memory(self) -> None:
        """Kill a kernel that exceeds its memory, several times a second; its copy takes over."""
        live = self._processes.live
        if live is None or live.pid is None or live.dead:
            return
        # A kernel can also fill the supervisor's memory, with a message that it never completes. Count that too.
        used = private_memory(live.pid) + live.stream.parser.waiting
        if used > self.base + self._allowed.memory_bytes + ROOM_BYTES:
            if self._relay.limits is not None:
                limit = self._allowed.memory_bytes
                self._relay.limits.blame(
                    Ended.MEMORY_LIMIT, f"the kernel exceeded its limit of {limit:,} bytes of memory"
                )
            # No interrupt first: memory would keep growing while it is handled.
            live.kill()

    def tree(self) -> None:
        """Count threads, and programs that a session runs, towards its limits, every few seconds.

        RLIMIT_NPROC does not apply to root, so something has to count from outside.
        """
        live, limits = self._processes.live, self._relay.limits
        if limits is None or live is None or live.pid is None or live.dead:
            return
        programs = self._allowed.processes
        below = descendants_of(live.pid) if programs else []
        if 1 + other_threads.count(live.pid) > self._allowed.threads:
            limits.stop(Ended.THREAD_LIMIT, f"the cell runs more than {self._allowed.threads} threads")
        elif len(below) > programs:
            limits.stop(Ended.PROCESS_LIMIT, f"the cell runs more than {programs} processes")
        elif programs and sum(map(resident_memory, (live.pid, *below))) > self.base + self._allowed.memory_bytes:
            limits.stop(Ended.MEMORY_LIMIT, f"kernel and programs use over {self._allowed.memory_bytes:,} bytes")

    async def copies(self) -> None:
        """Count copies as memory of the session, every few seconds. The oldest copy goes first."""
        seen, self._copies_seen = self._copies_seen, self._checkpoints.cells
        if len(self._checkpoints.copies) < 2 or (seen == self._checkpoints.cells and self._relay.current is None):
            return
        pids = [peer.pid for peer in self._processes.links() if peer.pid is not None]
        used = await asyncio.to_thread(lambda: sum(map(proportional_memory, pids)))
        if used > self._allowed.memory_bytes and self._checkpoints.drop_oldest():
            self._copies_seen = -1  # look again: one copy at a time is given up

    async def scratch(self) -> None:
        """Stop a cell that keeps filling a full scratch folder, every few seconds."""
        limits, folder = self._relay.limits, self._folder
        if limits is None:
            return
        allowed = self._allowed.scratch_bytes
        held = await asyncio.to_thread(folder_bytes, folder, stop_at=SCRATCH_COUNTED * allowed)
        seen_by, seen = self._scratch_seen
        self._scratch_seen = (limits, held)
        if seen_by is limits and held >= allowed and held > seen:
            limits.stop(
                Ended.SCRATCH_LIMIT,
                f"the scratch folder has reached its limit of {allowed:,} bytes; delete files in it",
            )
