"""One SQLite database in WAL mode: transactions, counters, faults in plain words.

The store is synchronous. A transaction takes a fraction of a millisecond and never waits for the disk (WAL with
``synchronous=NORMAL`` syncs at checkpoints only: a power cut may lose the last rows, never damage the file), so the
daemon calls it on its event loop. Nothing awaits inside a transaction.

Deleted data is overwritten in the file at once (``secure_delete``), and in the write-ahead log by `Store.purge`. SQLite
leaves copies behind in pages that it has rebalanced: `Store.compact` rewrites the file without them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

from rlm_memory import migration
from rlm_memory.errors import DiskFull, SessionEnded, fault
from rlm_memory.records import Value, from_row
from rlm_memory.reserve import Reserve

T = TypeVar("T")

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA secure_delete=ON",
    "PRAGMA busy_timeout=5000",
)
_STATEMENTS = 512
"""Number of prepared statements that the connection keeps: more than there are. Preparing one takes longer than
executing it."""

_PEEK = "SELECT value FROM counters WHERE scope = :scope"
_COUNT = """
    INSERT INTO counters (scope, value) VALUES (:scope, :step)
    ON CONFLICT (scope) DO UPDATE SET value = value + :step RETURNING value"""
_RAISE = """
    INSERT INTO counters (scope, value) VALUES (:scope, :least)
    ON CONFLICT (scope) DO UPDATE SET value = :least WHERE value < :least"""


class Store:
    """The database. Open it with `Store.open`; the functions of the other modules take it as first argument."""

    def __init__(self, path: Path) -> None:
        self._where = str(path)
        self._connection: sqlite3.Connection | None = None
        self._reserve, self._spares = Reserve(path.with_name("reserve")), 0
        # Re-entrant: a step that calls another noun's function joins the transaction that is already open.
        self._lock = threading.RLock()
        self._open = False
        self.may_hold_copies = False
        """Whether rows were deleted since the file was last rewritten."""
        self.rollbacks = 0
        """How many transactions were rolled back: what was read in one of them may never have existed."""
        self._watchers: list[Callable[[], None]] = []

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the database file ``path``, creating it (0600) and its missing tables.

        Raises:
            StoreUnavailable: the file cannot be created, read or locked, or is no database.
            StoreTooOld: a version before the first release wrote it.
            StoreTooNew: a newer version of this program wrote it.
        """
        store = cls(path)
        try:
            store._reserve.take()
            try:
                store._begin(path)
            except DiskFull:  # beginning a transaction needs a little room, too
                store._reserve.give()
                store._begin(path)
                store._reserve.take()
        except BaseException:
            store.close()
            raise
        return store

    def _begin(self, path: Path) -> None:
        try:
            _create_private(path)
        except OSError as error:
            raise fault(str(path), error) from error
        with self._faults():
            migration.refuse_other_versions(path)
            with self.transaction():
                migration.add_missing(self._driver())
            self.purge()

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def spare(self) -> Iterator[None]:
        """Allow the caller to delete rows on a full disk: it gets the reserve and overwrites the data later."""
        self._spares += 1
        if self._spares == 1:
            self._reserve.give()
            self._overwrite("FAST")
            self.may_hold_copies = True
        try:
            yield
        finally:
            self._spares -= 1
            if not self._spares:
                self._overwrite("ON")
                self._reserve.take()

    def _overwrite(self, how: str) -> None:
        self.rows(f"PRAGMA secure_delete={how}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the block in a transaction, which is committed at the end and rolled back by an exception.

        Nested use joins the outer transaction.
        """
        with self._lock:
            if self._open:
                yield
                return
            with self._faults():
                driver = self._driver()
                # It takes the write lock at once, so that it never fails half-way because another process wrote.
                driver.execute("BEGIN IMMEDIATE")
                before = driver.total_changes
                self._open = True
                try:
                    yield
                    driver.execute("COMMIT")
                except BaseException:
                    self.rollbacks += 1
                    driver.rollback()
                    raise
                finally:
                    self._open = False
                changed = driver.total_changes != before
            for callback in tuple(self._watchers) if changed else ():
                callback()

    def run(self, sql: str, /, **values: Value) -> int:
        """Execute a statement in the open transaction, or in one of its own. Return how many rows it changed."""
        with self.transaction():
            return self._driver().execute(sql, values).rowcount

    def run_each(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        """Execute a statement once with each of the rows, in the open transaction or in one of its own."""
        with self.transaction():
            self._driver().executemany(sql, rows)

    def returned(self, sql: str, /, **values: Value) -> list[sqlite3.Row]:
        """Return the rows of a statement that writes, executed in the open transaction or in one of its own."""
        with self.transaction():
            return self._driver().execute(sql, values).fetchall()

    def rows(self, sql: str, /, **values: Value) -> list[sqlite3.Row]:
        """Return the rows that a statement reads. Outside a transaction it begins none, which would take longer."""
        with self._lock, self._faults():
            return self._driver().execute(sql, values).fetchall()

    def row(self, sql: str, /, **values: Value) -> sqlite3.Row | None:
        """Return the first row that a statement reads, or None."""
        with self._lock, self._faults(), closing(self._driver().execute(sql, values)) as found:
            # Left open, the statement would go on reading, and keep the log in use.
            row: sqlite3.Row | None = found.fetchone()
            return row

    def one(self, sql: str, /, **values: Value) -> sqlite3.Row:
        """Return the row of a statement that always reads exactly one, such as a sum."""
        (found,) = self.rows(sql, **values)
        return found

    def records(self, kind: type[T], sql: str, /, **values: Value) -> list[T]:
        """Return the rows that a statement reads as objects."""
        return [from_row(kind, row) for row in self.rows(sql, **values)]

    def record(self, kind: type[T], sql: str, /, **values: Value) -> T | None:
        """Return the first row that a statement reads as an object, or None."""
        row = self.row(sql, **values)
        return None if row is None else from_row(kind, row)

    def scalars(self, sql: str, /, **values: Value) -> list[Any]:
        """Return the first value of each row that a statement reads."""
        return [row[0] for row in self.rows(sql, **values)]

    def scalar(self, sql: str, /, **values: Value) -> Any:
        """Return the first value of the first row that a statement reads, or None."""
        found = self.row(sql, **values)
        return None if found is None else found[0]

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` after each transaction that changed rows, in its thread. Return a function that stops this.

        The next transaction waits for the call, so it must do next to nothing.
        """
        self._watchers.append(told)
        return lambda: self._watchers.remove(told)

    def count(self, scope: str, step: int = 1) -> int:
        """Advance the counter ``scope`` by ``step`` and return its value before (the first is 0)."""
        after: int = self.returned(_COUNT, scope=scope, step=step)[0][0]
        return after - step

    def peek_count(self, scope: str) -> int:
        """Return what `count` would return next, without advancing."""
        return self.scalar(_PEEK, scope=scope) or 0

    def raise_count(self, scope: str, value: int) -> None:
        """Make sure that the counter ``scope`` never returns a value below ``value``."""
        self.run(_RAISE, scope=scope, least=value)

    def purge(self) -> bool:
        """Remove what outlives deleted rows. Return False if a reader holds the write-ahead log, which contains them.

        SQLite keeps the pages that it has read, and prepared statements keep the values of their last use.
        """
        self.may_hold_copies = True
        with self._lock:
            assert not self._open, "a purge would lose the transaction"
            before, self._connection = self._connection, None
            try:  # opened before the other is closed: on a full disk there may be no room for a new log
                self._driver()
            except sqlite3.Error:
                self._connection = before
                if before is None:
                    raise
                return False
            if before is not None:
                before.close()
            busy: int = self.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
        return not busy

    def compact(self) -> bool:
        """Rewrite the file if something was deleted, so that no page has a copy. Return False if others are at work.

        Call it in a thread: it takes about a second per 50 MB. Reads continue meanwhile, and writes wait.
        """
        if not self.may_hold_copies:
            return True
        self.may_hold_copies = False
        busy = 1
        # Locked, or no room for a second file: the next attempt may succeed.
        with suppress(sqlite3.OperationalError), closing(_existing(self._where, timeout=1.0)) as connection:
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        self.may_hold_copies |= bool(busy)
        return not busy

    def _driver(self) -> sqlite3.Connection:
        """Return the only connection; the caller holds the lock."""
        if self._connection is None:
            self._connection = _connected(self._where)
            if self._spares:
                self._overwrite("FAST")
        return self._connection

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                raise SessionEnded from None  # what the statement was given must not be kept
            raise fault(self._where, error) from error


def _connected(where: str) -> sqlite3.Connection:
    # Any thread may use the connection, under the store's lock.
    connection = _existing(where, check_same_thread=False, cached_statements=_STATEMENTS)
    connection.row_factory = sqlite3.Row
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _existing(where: str, **options: Any) -> sqlite3.Connection:
    """Open a file that must be there: a new one would be empty, and everybody could read it."""
    # No isolation level: the driver would begin transactions itself, and too late for a reader.
    opened: sqlite3.Connection = sqlite3.connect(
        f"file:{quote(where)}?mode=rw", uri=True, isolation_level=None, **options
    )
    return opened


def _create_private(path: Path) -> None:
    # SQLite copies the mode to its -wal and -shm files.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
