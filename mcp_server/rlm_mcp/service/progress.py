"""Progress of long calls, for clients that have asked for it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import ParamSpec, Protocol, TypeVar

from rlm_contexts.progress import Meter, watched
from rlm_mcp.service.background import Threads

_EVERY_SECONDS = 0.5
_PATIENT = Threads(4, thread_name_prefix="patient")
"""Threads for work that may take minutes: the event loop's own threads stay free for short work."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Told = tuple[int, str, int | None]
"""How much is done, what is happening, and how much there is, if that is known."""


class Progress(Protocol):
    """Tells the client that its call is still being worked on."""

    async def __call__(self, done: float, message: str, total: float | None = None) -> None:
        """Tell how much is done (seconds or bytes), what is happening, and how much there is, if that is known."""


async def tell_nobody(done: float, message: str, total: float | None = None) -> None:
    """Take progress for a caller who has not asked for it."""


async def patiently(work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """Run long work in a thread. If the call is cancelled, a helper process that it waits for is ended."""
    meter = watched.get() or Meter()
    context = copy_context()
    context.run(watched.set, meter)
    job = functools.partial(context.run, work, *args, **kwargs)
    try:
        return await asyncio.get_running_loop().run_in_executor(_PATIENT, job)
    finally:
        meter.stop.set()


@asynccontextmanager
async def telling_of_load(progress: Progress, name: str) -> AsyncIterator[None]:
    """Report the progress of the load in this context until it ends."""
    meter = Meter()

    def look() -> Told | None:
        done, of = meter.look(), "" if meter.total is None else f" of {meter.total:,}"
        return (done, f"loading {name}: {done:,}{of} bytes", meter.total) if done else None

    before = watched.set(meter)
    try:
        async with telling(progress, look):
            yield
    finally:
        watched.reset(before)


@asynccontextmanager
async def telling(progress: Progress, look: Callable[[], Told | None]) -> AsyncIterator[None]:
    """Report what ``look`` returns now and then, until the block ends."""
    task = asyncio.create_task(_tell(progress, look))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # the client is gone


async def _tell(progress: Progress, look: Callable[[], Told | None]) -> None:
    told = -1
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        if (seen := look()) is not None and seen[0] > told:  # the protocol wants it to grow
            told = seen[0]
            await progress(*seen)
