"""What the zygote, and each fork that waits for a session, do in advance so that the session's first cell is quick."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from rlm_ipc import messages, processes, worker_protocol
from rlm_ipc.worker_protocol import RunCell, Start
from rlm_kernel._immortal import make_immortal
from rlm_kernel.worker.cell_runner import CellRunner
from rlm_kernel.worker.session_state import WALL_CHANGERS, WorkerSession, resolve_in
from rlm_kernel.worker.worker_process import WorkerProcess
from rlm_sandbox.language_wall import sealing
from rlm_sandbox.os_wall.confine import isolate

if TYPE_CHECKING:
    from rlm_sandbox.policy.model import Policy

_MESSAGES = (
    *(worker_protocol.Fork, worker_protocol.Forked, worker_protocol.Handshake, Start, worker_protocol.Started),
    *(RunCell, worker_protocol.Shown, worker_protocol.CellDone),
)
"""The messages of a session's start and first cell."""
_FIRST_CELLS = ("1+1", "import asyncio\nawait asyncio.sleep(0)", "print(1)")
"""None fails: IPython would import its traceback renderer, which only sessions without language wall use."""


class Warmup:
    """Prepares one process for sessions under the policy that `warm` was told to expect."""

    def __init__(self, process: WorkerProcess, runner: CellRunner) -> None:
        self._process, self._runner = process, runner
        self._expected = ""

    def warm(self, expected: Policy) -> None:
        """Run, in the zygote, the paths of a first cell once, so that every fork has them in memory.

        Then forget their traces. ``expected`` is the policy for which forks prepare themselves.
        """
        self._expected = expected.to_json()
        # Imports leave hardly any garbage. Later collections, one of which IPython makes, have less to visit.
        gc.freeze()
        for kind in _MESSAGES:
            messages.prepare(kind)
        process = self._process
        streams = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = process.stdout, process.stderr
        process.renew_loop()
        with process.muted():
            for code in _FIRST_CELLS:
                process.loop.run(process.kernel.do_execute(code, False))
        self._any_session().queries.helpers()
        process.loop.close()
        sys.stdout, sys.stderr = streams
        process.forget_cells()
        sealing.note(WALL_CHANGERS)
        # Using an object writes to its page, and so does the collector that visits it: the first write in each fork
        # copies the page. References to immortal objects are not counted, and frozen objects are never visited.
        gc.collect()
        gc.unfreeze()
        make_immortal(gc.get_objects())
        gc.freeze()
        gc.enable()
        processes.trim_heap()

    def make_ready(self) -> None:
        """Do, in a fork of the zygote, what is the same for every usual session.

        A usual session compiles its cells under a policy and has no network. One cell is rehearsed behind the language
        wall: each page that the system copies now is one less to copy while someone waits.
        """
        process = self._process
        resolve_in()
        with process.muted():
            process.session = self._any_session()
            process.session.raise_language_wall(process.kernel.shell, (process.stdout, process.stderr))
            process.use_streams()
            self._runner.run_cell(RunCell("1+1"))
        process.session = None
        process.forget_cells()
        process.isolation = isolate(process.descriptors, network=False, seclusion=process.seclusion)

    def _any_session(self) -> WorkerSession:
        return self._process.new_session(Start(self._expected, "/", query_base=1))
