"""Bounds for tables that only grow: texts are cut, and the oldest rows are deleted first.

Such a table has the columns ``number`` (the order of its rows), ``session`` and ``size`` (the bytes that a row counts).
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Select, Table, delete, func, or_, select, true

from rlm_memory.store import Store

_ALL = true()
_HELD = "select count(*), coalesce(sum(size), 0) from {} where session = :of"
_CUT = "\n… cut"


def storable(text: str, longest: int) -> str:
    """Return the text as SQLite can hold it (no lone surrogates), cut with a mark."""
    if len(text) > longest:
        text = text[: longest - len(_CUT)] + _CUT
    return text.encode("utf-8", "replace").decode()


def storable_line(text: str, longest: int) -> str:
    """Return the same without NUL, at which SQLite's functions would cut what a list shows."""
    return storable(text, longest).replace("\0", "\N{REPLACEMENT CHARACTER}")


def trim(
    store: Store,
    table: Table,
    *,
    size: int,
    rows: int,
    session: int,
    among: ColumnElement[bool] = _ALL,
) -> None:
    """Delete the session's oldest rows in ``among`` until at most ``rows`` and at most ``size`` bytes are left."""
    ((count, total),) = store.read(_HELD.format(table.name), of=session)
    if count <= rows and total <= size:
        return
    own, number = (table.c.session == session, among), table.c.number
    if total > size:
        condition: list[ColumnElement[bool]] = [number.in_(numbers_beyond(table, *own, size=size, rows=rows))]
    else:  # usual for a session in long use: the index leads to the oldest row that stays
        beyond = select(number).where(*own).order_by(number.desc()).limit(1).offset(rows)
        condition = [*own, number <= beyond.scalar_subquery()]
    store.run(delete(table).where(*condition))


def trim_all(store: Store, table: Table, *, size: int, among: ColumnElement[bool] = _ALL) -> None:
    """Delete the oldest rows in ``among``, over all sessions, until at most ``size`` bytes are left."""
    with store.transaction() as connection:
        held: int = connection.execute(select(func.coalesce(func.sum(table.c.size), 0)).where(among)).scalar_one()
        if held > size:
            over = numbers_beyond(table, among, size=size)
            connection.execute(delete(table).where(table.c.number.in_(over)))


def numbers_beyond(table: Table, *among: ColumnElement[bool], size: int, rows: int | None = None) -> Select[tuple[int]]:
    """Select the numbers of the oldest rows in ``among`` that exceed ``rows``, or ``size`` bytes."""
    newest = table.c.number.desc()
    position = func.row_number().over(order_by=newest).label("position")
    total = func.sum(table.c.size).over(order_by=newest).label("total")
    found = select(table.c.number, position, total).where(*among).subquery()
    too_much = found.c.total > size
    if rows is not None:
        too_much = or_(too_much, found.c.position > rows)
    return select(found.c.number).where(too_much)
