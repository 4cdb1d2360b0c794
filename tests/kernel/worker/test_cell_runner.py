"""What is reported of a cell, and that a rehearsal takes nothing from the report of the next one."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from rlm_ipc.kernel_reports import GivenAnswers
from rlm_ipc.worker_protocol import CellDone, CellStatus, RefusedAttempts
from rlm_kernel.worker.cell_runner import CellRunner
from rlm_sandbox.language_wall.audit_hook import refusals


class FakeProcess:
    """The parts of a process that the runner looks at: a namespace, a session with one text, and a line."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {}
        self.hidden: dict[str, Any] = {}
        self.text = object()
        self.given: list[GivenAnswers | None] = [GivenAnswers(["yes"])]
        self.sent: list[CellDone] = []
        self.held: list[bool] = []
        shell = SimpleNamespace(compile=SimpleNamespace(refused_cells=0), history_manager=None)
        self.kernel = SimpleNamespace(interrupted=True, shell=shell, execution_count=1)
        self.loop = SimpleNamespace(run=asyncio.run)
        self.link = SimpleNamespace(hold=self.held.append)
        self.session = SimpleNamespace(
            wall=None,
            contexts={"log": self.text},
            returned=set(),
            rebind=self._rebind,
            shadowed=lambda namespace: [] if namespace.get("log") is self.text else ["log"],
            given=lambda _namespace: self.given.pop(),
            user=nullcontext,
        )

    def _rebind(self, namespace: dict[str, Any]) -> None:
        if "log" not in namespace:
            namespace["log"] = self.text
            self.session.returned.add("log")

    def send(self, message: CellDone) -> None:
        """Take a report."""
        self.sent.append(message)


async def _cell(process: FakeProcess) -> dict[str, Any]:
    process.namespace["made"] = 1
    process.kernel.shell.compile.refused_cells += 1
    return {"status": "ok", "execution_count": 7}


def test_the_report_tells_what_a_cell_has_changed() -> None:
    """It leaves in one write with what came before it, and an interrupt that came too late is forgotten.

    What was refused counts from the start of the process, which other tests may have used before.
    """
    process: Any = FakeProcess()
    CellRunner(process).run(_cell(process))
    [done] = process.sent
    assert (done.reply.status, done.reply.execution_count) == (CellStatus.OK, 7)
    assert (done.defined, done.shadowed, done.returned) == (("made",), (), ("log",))
    assert (done.refused, done.given) == (RefusedAttempts(refusals(), 1), GivenAnswers(["yes"]))
    assert (process.held, process.kernel.interrupted) == ([True, False], False)


def test_a_rehearsal_takes_nothing_from_the_next_report() -> None:
    """What happened before it, between two cells, is told with the cell after it."""
    process: Any = FakeProcess()
    runner = CellRunner(process)
    runner.run(_cell(process), rehearsed=True)
    runner.run(_cell(process))
    _, done = process.sent
    assert (done.returned, done.refused, done.given) == (
        ("log",),
        RefusedAttempts(refusals(), 2),
        GivenAnswers(["yes"]),
    )
