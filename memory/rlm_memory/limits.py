"""Bounds for tables that only grow: texts are cut, and the oldest rows are deleted first.

Such a table has the columns ``number`` (the order of its rows), ``session`` and ``size`` (the bytes that a row counts).
"""

from __future__ import annotations

from rlm_memory.store import Store

_CUT = "\n… cut"


def storable(text: str, longest: int) -> str:
    """Return the text as SQLite can hold it (no lone surrogates), cut with a mark."""
    if len(text) > longest:
        text = text[: longest - len(_CUT)] + _CUT
    return text.encode("utf-8", "replace").decode()


def storable_line(text: str, longest: int) -> str:
    """Return the same without NUL, at which SQLite's functions would cut what a list shows."""
    return storable(text, longest).replace("\0", "\N{REPLACEMENT CHARACTER}")


def trim(store: Store, table: str, *, size: int, rows: int, session: int, among: str = "true") -> None:
    """Delete the session's oldest rows until at most ``rows`` and at most ``size`` bytes are left.

    ``among`` is an SQL condition: other rows stay.
    """
    held = f"SELECT count(*), coalesce(sum(size), 0) FROM {table} WHERE session = :of"
    ((count, total),) = store.rows(held, of=session)
    if count <= rows and total <= size:
        return
    own = f"session = :of AND {among}"
    if total > size:
        over = f"number IN ({oldest_beyond(table, own)})"
    else:  # usual for a session in long use: the index leads to the oldest row that stays
        newest = f"SELECT number FROM {table} WHERE {own} ORDER BY number DESC LIMIT 1 OFFSET :rows"
        over = f"{own} AND number <= ({newest})"
    store.run(f"DELETE FROM {table} WHERE {over}", of=session, size=size, rows=rows)


def trim_all(store: Store, table: str, *, size: int, among: str = "true") -> None:
    """Delete the oldest rows of all sessions that meet ``among`` until at most ``size`` bytes are left."""
    with store.transaction():
        if store.scalar(f"SELECT coalesce(sum(size), 0) FROM {table} WHERE {among}") > size:
            over = oldest_beyond(table, among)
            store.run(f"DELETE FROM {table} WHERE number IN ({over})", size=size, rows=None)


def oldest_beyond(table: str, among: str = "true") -> str:
    """Return a query for the numbers of the oldest rows that exceed ``:rows``, if given, or ``:size`` bytes."""
    return f"""
        SELECT number FROM (
            SELECT number, row_number() OVER newest AS position, sum(size) OVER newest AS total
            FROM {table} WHERE {among} WINDOW newest AS (ORDER BY number DESC)
        ) WHERE total > :size OR position > :rows
    """
