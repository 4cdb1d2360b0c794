"""Waiting for processes that may never answer, and for futures that may never be awaited."""

from __future__ import annotations

import asyncio
from typing import Any

from rlm_kernel.supervisor.processes.proc_status import Effort, effort

MOST_SECONDS = 120.0
SOON_SECONDS = 0.1
"""Most answers come before that, and nobody looks at the process."""


async def answered(answer: asyncio.Future[Any], seconds: float, pid: int | None) -> Any:
    """Wait for an answer of the process ``pid``; raises TimeoutError.

    The limit is ``seconds`` of processor time, and `MOST_SECONDS` by the clock while the process wants to run. On a
    machine with too much work or too little memory, a slow process is not a dead one.
    """
    loop = asyncio.get_running_loop()
    began, looks = loop.time(), list[Effort]()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        now = effort(pid)
        looks.append(now)
        tries = len(looks) == 1 or now.wants or now.used > looks[-2].used
        if tries and now.used - looks[0].used < seconds and loop.time() - began < MOST_SECONDS:
            timer = loop.call_later(seconds, look)
        elif not answer.done():
            answer.set_exception(TimeoutError())
            retrieved(answer)  # its caller may just have given up

    timer = loop.call_later(min(seconds, SOON_SECONDS), look)
    try:
        return await answer
    finally:
        timer.cancel()
        answer.cancel()


def retrieved(future: asyncio.Future[Any]) -> None:
    """Retrieve a future's error that nobody else will retrieve, because asyncio logs every unretrieved one."""
    if not future.cancelled():
        future.exception()


async def within(began: asyncio.Event, future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait until the work has started or is done. Return False if neither happens within ``seconds``."""
    waiter = asyncio.ensure_future(began.wait())
    done, _ = await asyncio.wait({waiter, future}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    return bool(done)
