"""Tables that only grow, kept in bounds: texts are cut, and the oldest rows go first.

Such a table has the columns ``number`` (the order of its rows), ``session`` and ``size`` (what a row counts, in bytes).
"""

from __future__ import annotations

from sqlalchemy import Select, Table, delete, func, or_, select

from rlm_memory.store import Store

__all__ = ["storable", "trim", "trim_all"]

_CUT = "\n… cut"


def storable(text: str, longest: int) -> str:
    """Return the text as SQLite can hold it (no lone surrogates), cut with a mark."""
    if len(text) > longest:
        text = text[: longest - len(_CUT)] + _CUT
    return text.encode("utf-8", "replace").decode()


def trim(store: Store, table: Table, *, size: int, rows: int, session: int) -> None:
    """Delete the session's oldest rows until at most ``rows`` and at most ``size`` bytes are left."""
    _delete_beyond(store, table, _running(table).where(table.c.session == session), rows, size)


def trim_all(store: Store, table: Table, *, size: int) -> None:
    """Delete the oldest rows of all sessions until at most ``size`` bytes are left."""
    with store.transaction() as connection:
        held: int = connection.execute(select(func.coalesce(func.sum(table.c.size), 0))).scalar_one()
        if held > size:
            _delete_beyond(store, table, _running(table), None, size)


def _running(table: Table) -> Select[tuple[int, int, int]]:
    """Each row with its position from the newest, and the bytes up to it."""
    newest = table.c.number.desc()
    position = func.row_number().over(order_by=newest).label("position")
    return select(table.c.number, position, func.sum(table.c.size).over(order_by=newest).label("total"))


def _delete_beyond(
    store: Store, table: Table, running: Select[tuple[int, int, int]], rows: int | None, size: int
) -> None:
    found = running.subquery()
    too_much = found.c.total > size
    if rows is not None:
        too_much = or_(too_much, found.c.position > rows)
    with store.transaction() as connection:
        connection.execute(delete(table).where(table.c.number.in_(select(found.c.number).where(too_much))))
