"""Whose turn it is in a session: one cell, or one request that changes what cells see, at a time."""

from __future__ import annotations

import asyncio
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType

from rlm_ipc.displays import some_of
from rlm_ipc.errors import KernelWaits
from rlm_mcp.service.sessions.kernel_queries import KernelQueries


class KernelTurn:
    """The turns of one session; ``over`` is called after each of them."""

    def __init__(self, queries: KernelQueries, over: Callable[[], None]) -> None:
        self.lock = asyncio.Lock()
        """Held by whoever has the turn."""
        self.cells = 0
        """How many have a turn, or wait for one."""
        self._queries = queries
        self._over = over

    async def __aenter__(self) -> None:
        """Wait until no other cell of the session runs, and keep the others out."""
        self.cells += 1
        try:
            await self.lock.acquire()
        except BaseException:
            self.cells -= 1
            raise

    async def __aexit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        self.lock.release()
        self.cells -= 1
        if error is None:
            self._over()

    @asynccontextmanager
    async def between_cells(self, *, busy: bool = True) -> AsyncIterator[None]:
        """Wait like a turn, but not for a cell that waits for an agent.

        Without ``busy`` the session counts as idle meanwhile: whoever would not wait for a cell waits for this.

        Raises:
            KernelWaits: A cell waits for answers, or begins to while the caller waits for it.
        """
        async with AsyncExitStack() as held:
            turn = self if busy else self.lock
            entering = asyncio.ensure_future(held.enter_async_context(turn))
            try:
                while not entering.done():
                    self.refuse_if_waiting()
                    await asyncio.wait({entering, self._queries.next_suspension()}, return_when=FIRST_COMPLETED)
            except BaseException:
                entering.cancel()
                await asyncio.wait({entering})
                raise
            await entering
            yield

    def refuse_if_waiting(self) -> None:
        """Raise `KernelWaits` if a cell waits for an agent: whoever would wait for the cell may be that agent."""
        if asked := self._queries.of_agent:
            raise KernelWaits(f"the session's code waits for answers to {some_of(sorted(asked))}")
