"""Rows that are read again only when a transaction may have changed them."""

import asyncio

import pytest

from rlm_mcp.service.unchanged import Unchanged
from rlm_memory.store import Store

pytestmark = pytest.mark.anyio


class Reader:
    """Reads a counter, and counts the readings."""

    def __init__(self) -> None:
        self.readings = 0

    def __call__(self, store: Store, scope: str) -> int:
        self.readings += 1
        return store.peek_count(scope)


async def test_rows_are_read_once_until_a_transaction(store: Store) -> None:
    """Each call reads the same few rows, and a reading costs more than all that it is needed for."""
    rows, read = Unchanged(store), Reader()
    assert [rows.read(read, "a"), rows.read(read, "a"), rows.read(read, "b")] == [0, 0, 0]
    assert read.readings == 2
    store.count("a")
    assert [rows.read(read, "a"), rows.read(read, "a")] == [1, 1]
    assert read.readings == 3


async def test_a_transaction_of_another_thread_counts(store: Store) -> None:
    """Threads of the daemon write rows, too."""
    rows, read = Unchanged(store), Reader()
    assert rows.read(read, "a") == 0
    await asyncio.to_thread(store.count, "a")
    assert rows.read(read, "a") == 1


async def test_what_a_transaction_overtakes_is_read_again(store: Store) -> None:
    """The old row would be kept as the latest one."""
    rows = Unchanged(store)

    def overtaken(store: Store) -> int:
        before = store.peek_count("a")
        store.count("a")
        return before

    assert [rows.read(overtaken), rows.read(overtaken)] == [0, 1]
