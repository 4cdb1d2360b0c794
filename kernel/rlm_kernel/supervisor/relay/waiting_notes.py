"""What a front end shows about a waiting cell: whose cell it waits for, or whose answers.

The first of these notes disappears when the waiting cell starts; the second is part of the cell's output.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from rlm_ipc.displays import printable, some_of
from rlm_ipc.json_lines import TERMINAL
from rlm_kernel.supervisor.cells.cell_log import shown_author, shown_content
from rlm_kernel.supervisor.cells.cell_request import EXECUTE, CellRequest
from rlm_kernel.supervisor.cells.request_queue import RequestQueue
from rlm_kernel.supervisor.relay.broadcaster import JupyterBroadcaster

SHOWN_AFTER_SECONDS: Final = 1.0
"""Most cells start before that, and nobody asks why."""
LONGEST_LINE: Final = 80
_NAMED_QUERIES: Final = 3
_WHOSE: Final = {"agent": "an agent", "notebook": "another notebook", TERMINAL: "a terminal"}


class WaitingNotes:
    """Handles the cells of Jupyter clients in one queue; `watch` gets each of them."""

    def __init__(self, queue: RequestQueue, front: JupyterBroadcaster) -> None:
        self._queue, self._front = queue, front

    def watch(self, request: CellRequest) -> None:
        """Check a cell again in a moment, when it may still be waiting."""
        if request.direct is None and request.kind == EXECUTE and not self._queue.closed:
            asyncio.get_running_loop().call_later(SHOWN_AFTER_SECONDS, self._look, request)

    def _look(self, request: CellRequest) -> None:
        if not self._queue.holds(request):
            return
        ahead = self._queue.taken
        if isinstance(ahead, CellRequest) and ahead.kind == EXECUTE and not _same_client(ahead, request):
            request.says_that_it_waits = True
            self._front.stream(request, "stderr", _note(ahead))
        else:  # its own client's cells go first, and then perhaps another's
            self.watch(request)


def _same_client(one: CellRequest, other: CellRequest) -> bool:
    return one.direct is None and one.identities == other.identities


def _note(ahead: CellRequest) -> str:
    whose = _WHOSE[shown_author(ahead)]
    content = shown_content(ahead)
    line = "" if content is None else str(content["code"]).strip().partition("\n")[0]
    short = line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
    return f"[waits for the cell of {whose} that runs now{': ' if short else ''}{printable(short)}]\n"


def waits_for_answers(ids: Sequence[str]) -> str:
    """Return the note on a cell that waits for the answers to these queries."""
    return (
        f"[waits for an agent's answer to {some_of(ids, _NAMED_QUERIES)}. If no agent works in this session, "
        "interrupt the cell; mode='deferred' does not wait]\n"
    )
