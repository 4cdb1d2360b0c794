"""Stores that tell a test of each statement before SQLite runs it, so that the test can let a daemon die there."""

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

Tell = Callable[[str], None]


def tell_of_statements(monkeypatch: pytest.MonkeyPatch, tell: Tell) -> None:
    """Have stores that the test opens from now on call ``tell`` before each statement, with its first word.

    ``BEGIN`` and ``COMMIT`` are statements, too.
    """

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, given: Any = (), /) -> "Cursor":
            tell(sql.split(maxsplit=1)[0].upper())
            return super().execute(sql, given)

        def executemany(self, sql: str, given: Any, /) -> "Cursor":
            tell(sql.split(maxsplit=1)[0].upper())
            return super().executemany(sql, given)

    class Connection(sqlite3.Connection):
        def cursor(self, _factory: object = None) -> Cursor:  # type: ignore[override]  # stores ask for no other
            return super().cursor(Cursor)

        def execute(self, sql: str, given: Any = (), /) -> Cursor:
            return self.cursor().execute(sql, given)

        def executemany(self, sql: str, given: Any, /) -> Cursor:
            return self.cursor().executemany(sql, given)

        def commit(self) -> None:
            tell("COMMIT")
            super().commit()

    monkeypatch.setattr(sqlite3, "connect", Connection)
