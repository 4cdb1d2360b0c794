"""A rehearsal of what a cell makes a worker do, so that the pages that it writes to are ready in advance.

Each page that a cell is the first to write to after a copy was taken costs it a fault. An empty cell leaves a third of
them to the next one; with these steps a tenth is left. None of them runs the user's code, or can be noticed by it.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from rlm_ipc.worker_protocol import Fork, ForkState, RunCell, decode, encode
from rlm_kernel.worker import threads
from rlm_kernel.worker.cell_runner import CellRunner
from rlm_kernel.worker.worker_process import WorkerProcess

_CODE = """
for _ in ():
    class Unmade(Exception):
        def method(self, first, *others, keyword=1):
            with first as opened:
                opened[others] = {key: value for key, value in first.other.items() if key}
            return sorted(one for one in first), [one for one in others], lambda given: f"{given:d} {given!r}"
    try:
        print(Unmade)
    except ValueError as error:
        raise
    _ += 1
None
"""
"""A sample of what most cells consist of, for the compiler and the wall to process; none of it is ever reached."""


class Rehearsal:
    """Rehearses a cell in one process: after a copy was taken of its session, and before the next cell comes."""

    def __init__(self, process: WorkerProcess, runner: CellRunner) -> None:
        self._process, self._runner = process, runner

    def touch_pages(self) -> None:
        """Write to the pages that any cell writes to, by a cell that does nothing.

        The first write to a shared page copies it: done now it is done while the person thinks, and not in the next
        cell. It is left out where it could be noticed: without a wall (IPython's hooks are the user's there), while
        tasks of the user wait for the loop or threads are running, which may print, and in a copy.
        """
        process = self._process
        walled = process.session is not None and process.session.wall is not None
        if process.idle and walled and not threads.others().names:
            # A session may have left classes behind that raise in IPython's own code. The next real cell reports that.
            with process.muted(), suppress(Exception):
                self._runner.run_cell(decode(RunCell, encode(RunCell(_CODE, False))[1]), rehearsed=True)
                self._show()
                self._be_asked_for_copy()

    def _show(self) -> None:
        """Print, and show a value, as IPython does with the value of a cell's last expression."""
        kernel = self._process.kernel
        sys.stdout.write("1")
        # Its parts, and not a cell that ends in a value: that would become `_`, and the next number of `Out`.
        hook, kernel.session.bare = kernel.shell.displayhook, True
        try:
            hook.send(*hook.compute_format_data(1))
        finally:
            kernel.session.bare = False

    def _be_asked_for_copy(self) -> None:
        """Do what precedes the fork that follows a cell under ``checkpoint: strict``."""
        decode(Fork, encode(Fork(ForkState.DORMANT, asleep=True))[1])
        threads.others()
