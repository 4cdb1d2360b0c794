"""The versions of the database that this program can use, and the parts that it adds when they are missing.

It reads no earlier version, because no release has written one. A later version that only adds to the tables says so in
the database (`schema.OLDEST_READER`), and this one then leaves the tables alone.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rlm_memory import frame_schema, lock_schema, schema, work_schema  # noqa: F401 (their tables join `TABLES`)
from rlm_memory.errors import StoreTooNew, StoreTooOld
from rlm_memory.tables import TABLES

_OLDEST_READER = f"SELECT value FROM counters WHERE scope = '{schema.OLDEST_READER_SCOPE}'"


def refuse_other_versions(path: Path) -> None:
    """Raise StoreTooOld or StoreTooNew for a database that this version cannot use; the file stays as it is."""
    with closing(sqlite3.connect(path)) as database:
        (found,) = database.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if found < schema.VERSION and (found or tables):  # a new file has neither
            raise StoreTooOld(str(path), found, schema.VERSION)
        if found > schema.VERSION and not ("counters" in tables and _may_read(database)):
            raise StoreTooNew(str(path), found, schema.VERSION)


def _may_read(database: sqlite3.Connection) -> bool:
    """Whether a later version wrote the database in a way that this one can use unchanged."""
    return any(oldest <= schema.VERSION for (oldest,) in database.execute(_OLDEST_READER))


def add_missing(database: sqlite3.Connection) -> None:
    """Add missing tables and missing nullable columns, unless a later version manages them."""
    if database.execute("PRAGMA user_version").fetchone()[0] > schema.VERSION:
        return
    for table in TABLES:
        known = {row[1] for row in database.execute(f"PRAGMA table_info({table.name})")}
        for statement in (*(table.additions(known) if known else ()), *table.creation()):
            database.execute(statement)
    oldest = (schema.OLDEST_READER_SCOPE, schema.OLDEST_READER)
    database.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", oldest)
    database.execute(f"PRAGMA user_version={schema.VERSION:d}")
