"""Waits for answers on a clock that the test moves: each has its own limit."""

import asyncio
from contextlib import closing
from types import SimpleNamespace
from typing import Any

from rlm_ipc.kernel_reports import QueryOutcome
from rlm_ipc.worker_protocol import Resolved, Waits
from rlm_kernel.supervisor.cells.query_book import QueryBook
from rlm_kernel.supervisor.running.answer_wait import AnswerWait


class MovedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is what the test says."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def at(self, now: float) -> None:
        """Let everything happen that is due at that time."""
        self.now = now
        behind = self.create_future()
        self.call_at(now, behind.set_result, None)
        await behind


def test_the_limit_of_a_wait_that_is_over_does_not_end_the_next_one() -> None:
    """K-23: a cell that asks one question after the other waits for each as long as the policy says."""
    said = list[Any]()
    cell: Any = SimpleNamespace(queries=["q_000", "q_001"], direct=object())
    limits = SimpleNamespace(wait_for_input=lambda: None, input_came=lambda: None)
    relay: Any = SimpleNamespace(current=cell, limits=limits)
    processes: Any = SimpleNamespace(live=SimpleNamespace(say=said.append))
    book = QueryBook(0, 10, ["blocking"])
    wait = AnswerWait(10.0, relay, book, processes, lambda _: None)

    def ask(number: int) -> None:
        book.ask([{"number": number, "prompt": "p", "model": None, "mode": "blocking"}])
        wait.begin(Waits((f"q_{number:03d}",)))

    async def waits(loop: MovedLoop) -> None:
        ask(0)
        await loop.at(8.0)
        wait.answer(Resolved({"q_000": QueryOutcome("A")}))
        ask(1)
        await loop.at(12.0)
        assert (wait.ids, said[1:]) == (("q_001",), [])
        await loop.at(18.5)
        assert (wait.ids, said[1:]) == ((), [Resolved(late=("q_001",))])

    with closing(MovedLoop()) as loop:
        loop.run_until_complete(waits(loop))
