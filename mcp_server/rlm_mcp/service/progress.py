"""Progress of long calls, for clients that have asked for it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import ParamSpec, Protocol, TypeVar

from rlm_contexts.progress import Meter, watched
from rlm_mcp.service.threads import Threads

_EVERY_SECONDS = 0.5
_PATIENT = Threads(4, thread_name_prefix="patient")
"""Threads for work that may take minutes: the event loop's own threads stay free for short work."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Progress(Protocol):
    """Tells the client that its call is still being worked on."""

    async def __call__(self, done: float, message: str, total: float | None = None) -> None:
        """Tell how much is done (seconds or bytes), what is happening, and how much there is, if that is known."""


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
async def telling(progress: Progress, name: str) -> AsyncIterator[None]:
    """Report the progress of the load in this context until it ends."""
    meter = Meter()
    before = watched.set(meter)
    task = asyncio.create_task(_tell(meter, progress, name))
    try:
        yield
    finally:
        watched.reset(before)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # the client is gone


async def _tell(meter: Meter, progress: Progress, name: str) -> None:
    told = 0
    while True:
        await asyncio.sleep(_EVERY_SECONDS)
        done = meter.look()
        if done > told:  # the protocol wants it to grow
            told = done
            of = "" if meter.total is None else f" of {meter.total:,}"
            await progress(done, f"loading {name}: {done:,}{of} bytes", meter.total)
