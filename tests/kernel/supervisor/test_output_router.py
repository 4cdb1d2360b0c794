"""What the supervisor passes on to front ends of a request that another supervisor has sent out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import zmq

from rlm_ipc import worker_protocol
from rlm_ipc.jupyter_wire import DELIMITER, object_in
from rlm_kernel.supervisor.cells.cell_log import CellLog
from rlm_kernel.supervisor.cells.cell_request import EXECUTE, CellRequest
from rlm_kernel.supervisor.processes.kernel_json import LARGEST_JSON
from rlm_kernel.supervisor.processes.worker_link import WorkerLink
from rlm_kernel.supervisor.relay.broadcaster import ATTACHED, JupyterBroadcaster
from rlm_kernel.supervisor.relay.output_router import OutputRouter, TakenOver
from rlm_sandbox.policy.model import Limits

pytestmark = pytest.mark.anyio
TOO_LARGE = (b"x" * (LARGEST_JSON + 1),)


class Recorder:
    """A front end that keeps what it gets."""

    name = "person"

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, Any]]] = []

    def send(self, channel: str, parts: Sequence[bytes]) -> None:
        """Keep a message: its channel and its content."""
        self.got.append((channel, object_in(list(parts), 5)))

    def close(self, why: str = "") -> None:
        """Nothing to close."""


def begun(spool: Path, shown: int, *, hold: bool = False) -> tuple[OutputRouter, Recorder]:
    """A router of a front end's cell, of which an earlier supervisor had shown so many messages."""
    front = JupyterBroadcaster(zmq.Context.instance(), {"key": "", "transport": "ipc"}, lambda *_: None)
    front.attach(ATTACHED, recorder := Recorder())
    router = OutputRouter("k", front, Limits(), spool, CellLog(lambda _: None, lambda: 1))
    parts = [ATTACHED, DELIMITER, b"", b"{}", b"{}", b"{}", b"{}"]
    request = CellRequest(worker_protocol.SHELL, EXECUTE, parts, b"{}", run=ATTACHED)
    limits = router.begin(request, cast("WorkerLink", None), hold=hold, taken_over=TakenOver(0.0, 0.0, shown))
    limits.end()  # no clock of this test runs out
    return router, recorder


@pytest.mark.parametrize(("shown", "told"), [(0, 1), (1, 0)])
async def test_a_reply_that_is_too_large_is_refused_once(shown: int, told: int, tmp_path: Path) -> None:
    """A kernel repeats its reply to the next supervisor; a front end that has been told gets no second reply."""
    router, front_end = begun(tmp_path, shown)
    router.hears()
    router.forward("shell", TOO_LARGE)
    assert [content["ename"] for channel, content in front_end.got if channel == "shell"] == ["KernelError"] * told


async def test_a_refusal_waits_for_the_copy_under_strict_checkpoints(tmp_path: Path) -> None:
    """It confirms the cell as any reply does: if the kernel dies before its copy is taken, the cell runs again."""
    router, front_end = begun(tmp_path, 0, hold=True)
    router.hears()
    router.forward("shell", TOO_LARGE)
    assert front_end.got == []
    router.end()
    assert [content["ename"] for channel, content in front_end.got if channel == "shell"] == ["KernelError"]


async def test_a_request_for_input_that_is_too_large_is_not_lost_in_silence(tmp_path: Path) -> None:
    """The person reads why nothing asks: the cell waits for an answer until its time is up."""
    router, front_end = begun(tmp_path, 0)
    router.hears()
    router.forward("stdin", TOO_LARGE)
    request = router.current
    assert request is not None
    assert request.output is not None
    request.output.flush()
    assert [content["text"] for channel, content in front_end.got if channel == "iopub" and "text" in content] == [
        "[not shown: the output is over 32 MiB or cannot be read]\n"
    ]
