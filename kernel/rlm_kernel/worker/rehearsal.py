"""What a cell makes a worker go through, gone through ahead of it: so that the pages that this writes to are ready.

Each page that a cell is the first to write to after a copy was taken costs it a fault. An empty cell leaves a third of
them to the next one; with these steps a tenth is left. None of them runs code of the user's, or can be noticed by it.
"""

from __future__ import annotations

from typing import Any

from rlm_ipc import framing
from rlm_ipc.worker_protocol import CellDone, Fork, ForkState, RunCell, decode, encode
from rlm_kernel.worker import fork_session
from rlm_kernel.worker.stdio import TextStream

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
"""Of what most cells are made of, for the compiler and the wall to go through; none of it is ever reached."""


def cell() -> RunCell:
    """A cell that does nothing, as it arrives."""
    return decode(RunCell, encode(RunCell(_CODE, store_history=False))[1])


def answer(shell: Any, stdout: TextStream, done: CellDone) -> None:
    """Show a value, print, and make a reply of it: for a link that is muted."""
    stdout.write("1")
    shell.display_formatter.format(1)
    tag, part = encode(done)
    framing.pack(tag, (part,))


def be_asked_for_fork() -> None:
    """What comes before the fork that follows a cell under ``checkpoint: strict``."""
    decode(Fork, encode(Fork(ForkState.DORMANT, asleep=True))[1])
    fork_session.other_threads()
