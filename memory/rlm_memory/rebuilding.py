"""Tables and indexes of an older database are given the form of today's, whatever has to change for that.

SQLite can add a column that may be empty. For anything else (a condition, a column that must have a value, a key) a
table is written anew under its name: made, filled, dropped, renamed. Foreign keys are off meanwhile, because a table
that is dropped would take along what belongs to its rows. They are checked in the end.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from sqlalchemy import Connection, MetaData, Table, create_engine
from sqlalchemy.schema import CreateTable

Shape = tuple[Any, ...]
_ADDED = "_new"


def settle(connection: Connection, metadata: MetaData) -> None:
    """Give every table and index the form that ``metadata`` says; rows stay. In a transaction without foreign keys."""
    expected = create_engine("sqlite://")
    with expected.connect() as fresh:
        metadata.create_all(fresh)
        add_missing(connection, metadata)
        for table in metadata.sorted_tables:
            if _shape(connection, table.name) != _shape(fresh, table.name):
                _rebuild(connection, table)
            _settle_indexes(connection, fresh, table)
    expected.dispose()
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    if broken:
        raise sqlite3.IntegrityError(f"rows would refer to what is not there: {broken[:3]}")


def add_missing(connection: Connection, metadata: MetaData) -> None:
    """Add the tables that are not there, and the columns that may be empty."""
    metadata.create_all(connection)
    for table in metadata.sorted_tables:
        known = {row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table.name})")}
        for column in table.columns:
            if column.name not in known and column.nullable:
                kind = column.type.compile(connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}")


def _shape(connection: Connection, table: str) -> Shape:
    """What distinguishes a table from one of the same name; the order of its columns does not."""
    columns = connection.exec_driver_sql(f"PRAGMA table_info({table})").all()
    keys = connection.exec_driver_sql(f"PRAGMA foreign_key_list({table})").all()
    text = str(connection.exec_driver_sql(f"SELECT sql FROM sqlite_master WHERE name = '{table}'").scalar())
    return (
        sorted((row[1], str(row[2]).upper(), row[3], row[5]) for row in columns),
        sorted((row[2], row[3], row[4], row[6]) for row in keys),
        sorted(re.sub(r"\s+", " ", found) for found in re.findall(r"CHECK\s*(\(.*\))", text, re.IGNORECASE)),
        "AUTOINCREMENT" in text.upper(),
    )


def _rebuild(connection: Connection, table: Table) -> None:
    new = table.name + _ADDED
    text = str(CreateTable(table).compile(dialect=connection.dialect))
    connection.exec_driver_sql(text.replace(f"CREATE TABLE {table.name} ", f"CREATE TABLE {new} ", 1))
    known = {row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({table.name})")}
    columns = ", ".join(column.name for column in table.columns if column.name in known)
    connection.exec_driver_sql(f"INSERT INTO {new} ({columns}) SELECT {columns} FROM {table.name}")
    numbers = connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").first()
    if numbers:  # a number is never given out twice
        connection.exec_driver_sql(
            f"UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM sqlite_sequence WHERE name = '{table.name}') "
            f"WHERE name = '{new}' AND EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = '{table.name}')"
        )
    connection.exec_driver_sql(f"DROP TABLE {table.name}")
    connection.exec_driver_sql(f"ALTER TABLE {new} RENAME TO {table.name}")


def _settle_indexes(connection: Connection, fresh: Connection, table: Table) -> None:
    here, wanted = _indexes(connection, table.name), _indexes(fresh, table.name)
    for name in here:
        if here[name] != wanted.get(name):
            connection.exec_driver_sql(f"DROP INDEX {name}")
    for index in table.indexes:
        if index.name is not None and here.get(str(index.name)) != wanted[str(index.name)]:
            index.create(connection)


def _indexes(connection: Connection, table: str) -> dict[str, str]:
    found = connection.exec_driver_sql(
        f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = '{table}' AND sql IS NOT NULL"
    )
    return {name: re.sub(r"\s+", " ", text).lower() for name, text in found}
