"""Waiting for what nothing announces: a file that appears, a process that ends, a state that another process is in.

What announces itself (an event, a queue, a line of output) is waited for directly. Everything else is waited for
here, so that each wait has a deadline, and an error that shows what was seen last.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeVar, overload

SECONDS = 60.0
"""How long to wait: on a busy machine, processes take this long to start or to end."""

PROGRAM_SECONDS = 240.0
"""How long a whole program may take, which starts several processes or waits until a processor is idle."""

_SHORTEST, _LONGEST = 0.01, 0.1
_SHARE = 0.05
"""Of the time waited so far: each look takes processor time from the processes that are waited for."""

Seen = TypeVar("Seen")


def wait_until(look: Callable[[], Seen], wanted: Callable[[Seen], object] = bool, *, seconds: float = SECONDS) -> Seen:
    """Call `look` until `wanted` is true of what it returns, and return that.

    Raises:
        AssertionError: It is still not true after `seconds`.
    """
    began = time.monotonic()
    while not wanted(seen := look()):
        assert time.monotonic() < began + seconds, _report(seen)
        time.sleep(_pause(began))
    return seen


@overload
async def until(
    look: Callable[[], Awaitable[Seen]], wanted: Callable[[Seen], object] = bool, *, seconds: float = SECONDS
) -> Seen: ...


@overload
async def until(
    look: Callable[[], Seen], wanted: Callable[[Seen], object] = bool, *, seconds: float = SECONDS
) -> Seen: ...


async def until(look: Callable[[], Any], wanted: Callable[[Any], object] = bool, *, seconds: float = SECONDS) -> Any:
    """Call `look`, and await what it returns if that can be awaited, until `wanted` is true of it; return that.

    Raises:
        AssertionError: It is still not true after `seconds`.
    """
    seen: Any = None
    began = time.monotonic()
    clock = asyncio.timeout(seconds)
    try:
        async with clock:
            while True:
                seen = look()
                seen = await seen if isawaitable(seen) else seen
                if wanted(seen):
                    return seen
                await asyncio.sleep(_pause(began))
    except TimeoutError:
        assert not clock.expired(), _report(seen)
        raise


async def everything_ran() -> None:
    """Let everything run that can without an event from outside, and without a clock."""
    for _ in range(20):
        await asyncio.sleep(0)


def _pause(began: float) -> float:
    return min(max(_SHORTEST, (time.monotonic() - began) * _SHARE), _LONGEST)


def _report(seen: object) -> str:
    return f"it did not happen in time; seen last: {seen!r:.2000}"
