"""Waiting for processes that may never answer, and for futures that may never be awaited."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rlm_kernel.supervisor.processes.proc_status import effort

MOST_SECONDS = 120.0


async def answered(answer: asyncio.Future[Any], seconds: float, pid: int | None) -> Any:
    """Wait for an answer of the process ``pid``; raises TimeoutError.

    The limit is ``seconds`` of processor time, and `MOST_SECONDS` by the clock while the process wants to run. On a
    machine with too much work or too little memory, a slow process is not a dead one.
    """
    began, before = time.monotonic(), effort(pid)
    first = before.used
    try:
        while not (await asyncio.wait({answer}, timeout=seconds))[0]:
            now = effort(pid)
            tries = now.wants or now.used > before.used
            if not tries or now.used - first >= seconds or time.monotonic() - began >= MOST_SECONDS:
                raise TimeoutError
            before = now
    finally:
        answer.cancel()
    return answer.result()


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
