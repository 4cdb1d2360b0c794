"""Queries that wait for a provider: how many are under way, in what order, and what leaving means."""

import asyncio

import pytest
from waiting import everything_ran

from rlm_mcp.service.queries.provider_queue import ProviderQueue
from rlm_memory.queries import Asker, QueryRow, QueryState

pytestmark = pytest.mark.anyio


def row(name: str, model: str | None = None) -> QueryRow:
    """A query of code."""
    return QueryRow(1, name, 0, "?", model, QueryState.PENDING, None, None, 0.0, None, Asker.CODE, 0, "provider")


class Desk:
    """Works on a query until it is told to go on."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.told: dict[str, asyncio.Event] = {}

    async def work(self, query: QueryRow) -> None:
        """Begin, wait, end."""
        self.begun.append(query.id)
        await self.told.setdefault(query.id, asyncio.Event()).wait()
        self.done.append(query.id)


async def resolved(line: ProviderQueue, *, empty: bool) -> None:
    """Let everything run that can."""
    await everything_ran()
    assert line.empty.is_set() is empty


async def test_so_many_of_a_model_are_under_way_and_the_others_follow_in_their_order() -> None:
    """K-22: one model's line does not hold up another's, and asking twice is asking once."""
    desk = Desk()
    line = ProviderQueue(desk.work)
    for name in ("a", "b", "c", "d", "c"):
        line.join(row(name), 2)
    line.join(row("other", "large"), 1)
    await resolved(line, empty=False)
    assert desk.begun == ["a", "b", "other"]
    desk.told["b"].set()
    await resolved(line, empty=False)
    assert (desk.begun[3:], desk.done) == (["c"], ["b"])
    for name in ("a", "c", "d", "other"):
        desk.told.setdefault(name, asyncio.Event()).set()
    await resolved(line, empty=True)
    assert sorted(desk.done) == ["a", "b", "c", "d", "other"]


async def test_what_leaves_is_stopped_or_never_begun_and_its_place_is_free() -> None:
    """K-23: only what was not done counts as left; the same id may be asked anew at once."""
    desk = Desk()
    line = ProviderQueue(desk.work)
    for name in ("a", "b", "c"):
        line.join(row(name), 1)
    await resolved(line, empty=False)
    assert line.leave(["a", "b", "unknown"]) == ["a", "b"]
    line.join(row("a"), 1)
    await resolved(line, empty=False)
    assert (desk.begun, desk.done) == (["a", "c"], [])
    desk.told["c"].set()
    await resolved(line, empty=False)
    assert desk.begun == ["a", "c", "a"]
    await asyncio.gather(*line.close(), return_exceptions=True)
    await resolved(line, empty=True)
    assert desk.done == ["c"]


async def test_a_query_that_joins_anew_while_it_waits_is_worked_on_once() -> None:
    """Its first place in the line is still there: two workers that are free at once would both take it."""
    desk = Desk()
    line = ProviderQueue(desk.work)
    for name in ("a", "b", "c"):
        line.join(row(name), 2)
    await resolved(line, empty=False)
    assert line.leave(["c"]) == ["c"]
    line.join(row("c"), 2)
    for name in ("a", "b"):
        desk.told[name].set()
    await resolved(line, empty=False)
    assert desk.begun == ["a", "b", "c"]
    desk.told["c"].set()
    await resolved(line, empty=True)
    line.join(row("d"), 2)
    await resolved(line, empty=False)
    assert (desk.begun[3:], desk.done) == (["d"], ["a", "b", "c"])
    await asyncio.gather(*line.close(), return_exceptions=True)
