"""The event loop of a kernel process: what it survives, and how a fork gives up its parent's."""

import asyncio
import contextvars
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlm_kernel.worker.event_loop import EventLoop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """A loop in use."""
    loop = EventLoop()
    loop.renew()
    yield loop
    loop.close()


def test_another_task_that_exits_does_not_end_the_work(loop: EventLoop) -> None:
    """`exit()` in a task that an earlier cell left would else end the cell that runs."""

    async def leave() -> None:
        raise SystemExit

    async def work() -> str:
        left = asyncio.ensure_future(leave())
        await asyncio.wait({left})
        return "done"

    assert loop.run(work()) == "done"
    assert loop.pending() == ()


def test_work_that_never_waits_sees_a_running_loop_and_leaves_none(loop: EventLoop) -> None:
    """A cell without `await` takes no turn of the loop, and cannot tell. Its context is the cells' own."""
    number = contextvars.ContextVar("number", default=1)

    async def work() -> tuple[bool, "asyncio.Task[None]"]:
        number.set(2)
        return asyncio.get_running_loop().is_running(), asyncio.create_task(rest())

    async def rest() -> None:
        pass

    async def fail() -> None:
        raise KeyboardInterrupt

    assert loop.is_idle
    is_running, task = loop.run_at_once(work())
    assert (is_running, number.get()) == (True, 1)
    assert not loop.is_idle
    loop.run(task)
    assert loop.is_idle
    with pytest.raises(KeyboardInterrupt):
        loop.run_at_once(fail())
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_tasks_run_until_something_can_be_read(loop: EventLoop) -> None:
    """A process waits for its next request, and what cells have left goes on meanwhile."""
    reading, writing = os.pipe()

    async def write(begun: "asyncio.Future[None]") -> None:
        await begun
        os.write(writing, b"x")

    async def begin() -> "asyncio.Task[None]":
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, begun.set_result, None)
        return asyncio.ensure_future(write(begun))

    task = loop.run(begin())
    assert list(loop.pending()) == [task]
    loop.run_until_readable(reading)
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    os.close(writing)


def test_a_fork_that_abandons_the_loop_leaves_it_to_its_parent(loop: EventLoop) -> None:
    """The epoll is one for both: to unregister something in the child would make the parent deaf to it."""
    inherited = loop.descriptors()
    watched = _watched_by(inherited[0])
    assert watched
    child = os.fork()
    if child == 0:
        loop.abandon()
        gone = loop.descriptors() == () and not any(os.path.exists(f"/proc/self/fd/{fd}") for fd in inherited)
        os._exit(0 if gone else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert loop.descriptors() == inherited
    assert _watched_by(inherited[0]) == watched


def _watched_by(epoll: int) -> list[str]:
    """The descriptors that an epoll watches, by the system's own list (proc_pid_fdinfo(5))."""
    lines = Path(f"/proc/self/fdinfo/{epoll}").read_text().splitlines()
    return [line for line in lines if line.startswith("tfd:")]


def test_a_loop_that_is_not_there_has_nothing() -> None:
    """As in a copy that sleeps."""
    loop = EventLoop()
    assert (loop.pending(), loop.descriptors()) == ((), ())
    loop.abandon()
