"""One SQLite database in WAL mode behind SQLAlchemy Core: transactions, counters, faults in plain words.

The store is synchronous. A transaction takes a fraction of a millisecond and never waits for the disk (WAL
with ``synchronous=NORMAL`` syncs at checkpoints only: a power cut may lose the last rows, never damage the
file), so the daemon calls it on its event loop. Nothing awaits inside a transaction.

What is deleted is overwritten in the file at once (``secure_delete``), and in the write-ahead log by `Store.purge`.
SQLite leaves copies behind in pages that it has balanced: `Store.compact` writes the file anew, without them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, Executable, RowMapping, bindparam, create_engine, event
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.compiler import Compiled, SQLCompiler

from rlm_memory import migration, schema
from rlm_memory.errors import DiskFull, SessionEnded, StoreUnavailable, fault
from rlm_memory.reserve import Reserve

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=NORMAL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA secure_delete=ON",
    "PRAGMA busy_timeout=5000",
)

Given = Mapping[str, object] | Sequence[Mapping[str, object]] | None
"""The values of a statement; of one that is executed several times, each time's."""

_counters = schema.counters
# Counters are met several times in a cell: to build a statement takes longer than to execute it.
_PEEK = "select value from counters where scope = :of"
_COUNT = (
    insert(_counters)
    .values(scope=bindparam("of"), value=bindparam("step"))
    .on_conflict_do_update(index_elements=[_counters.c.scope], set_={"value": _counters.c.value + bindparam("step")})
    .returning(_counters.c.value)
)
_RAISE = (
    insert(_counters)
    .values(scope=bindparam("of"), value=bindparam("least"))
    .on_conflict_do_update(
        index_elements=[_counters.c.scope],
        set_={"value": bindparam("least")},
        where=_counters.c.value < bindparam("least"),
    )
)


class Store:
    """The database. Open it with `Store.open`; every noun's module takes it as first argument."""

    def __init__(self, engine: Engine, where: str) -> None:
        self._engine = engine
        self._driver: sqlite3.Connection | None = None
        event.listen(engine, "connect", self._connected)
        event.listen(engine, "close", self._closed)
        self._compiled: dict[Any, Compiled] = engine.get_execution_options()["compiled_cache"]
        self._where = where
        self._reserve, self._spares = Reserve(Path(where).with_name("reserve")), 0
        # Re-entrant: a step that calls another noun's function joins the transaction that is already open.
        self._lock = threading.RLock()
        self._current: Connection | None = None
        self.may_hold_copies = False
        """Whether rows were deleted since the file was last written anew."""
        self.rollbacks = 0
        """How many transactions were rolled back: what was read in one of them may never have been."""
        self._watchers: list[Callable[[], None]] = []

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the database file ``path``, creating it (0600) and its missing tables.

        Raises:
            StoreUnavailable: the file cannot be created, read or locked, or is no database.
            StoreTooOld: a version before the first release wrote it.
            StoreTooNew: a newer version of this program wrote it.
        """
        store = cls(_engine(path), str(path))
        try:
            store._reserve.take()
            try:
                store._begin(path)
            except DiskFull:  # to begin takes a little room as well
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
            with self._engine.begin() as connection:
                migration.add_missing(connection)
            self.purge()

    def close(self) -> None:
        """Close every connection. The store cannot be used afterwards."""
        self._engine.dispose()

    @contextmanager
    def spare(self) -> Iterator[None]:
        """Let what deletes rows do so on a full disk: it gets the reserve, and overwrites what it deletes later."""
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
        with self._lock, self._faults():
            self._direct().execute(f"PRAGMA secure_delete={how}")

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Give a connection inside a transaction: committed at the end, rolled back by an exception.

        Nested use joins the outer transaction.
        """
        with self._lock:
            if self._current is not None:
                yield self._current
                return
            with self._faults(), self._engine.begin() as connection:
                self._current = connection
                try:
                    yield connection
                except BaseException:
                    self.rollbacks += 1
                    raise
                finally:
                    self._current = None
            for told in tuple(self._watchers):
                told()

    def run(self, statement: Executable, given: Given = None) -> int:
        """Execute a statement in a transaction, or in the one that is open; returns how many rows it has changed."""
        with self.transaction() as connection:
            return connection.execute(statement, given).rowcount

    def rows(self, statement: Executable, given: Given = None) -> Sequence[RowMapping]:
        """Return the rows that a statement gives, read in a transaction, or in the one that is open."""
        with self.transaction() as connection:
            return connection.execute(statement, given).mappings().all()

    def row(self, statement: Executable, given: Given = None) -> RowMapping | None:
        """Return the first row that a statement gives, or None; no other is read."""
        with self.transaction() as connection:
            return connection.execute(statement, given).mappings().first()

    def scalars(self, statement: Executable, given: Given = None) -> list[Any]:
        """Return the first value of each row that a statement gives."""
        with self.transaction() as connection:
            return list(connection.execute(statement, given).scalars())

    def read(self, sql: str, **given: str | float) -> list[sqlite3.Row]:
        """Read rows by the driver itself, which takes a tenth of the time: for what is read at every call.

        Outside a transaction it begins none, which would take longer than the reading.
        """
        with self._lock, self._faults():
            return _fetched(self._direct().cursor(), sql, given)

    def write(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a statement for each of the rows, by the driver itself: for what is written often.

        It is a transaction, or a part of the one that is open.
        """
        with self._lock:
            if self._current is not None:
                self._direct().cursor().executemany(sql, rows)
                return
            with self._faults():
                driver = self._direct()
                driver.execute("BEGIN IMMEDIATE")
                try:
                    driver.executemany(sql, rows)
                    driver.execute("COMMIT")
                except BaseException:
                    self.rollbacks += 1
                    driver.rollback()
                    raise
            for told in tuple(self._watchers):
                told()

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` after each transaction, whatever it did, in its thread; returns what ends that.

        The next transaction waits for it: it must do next to nothing.
        """
        self._watchers.append(told)
        return lambda: self._watchers.remove(told)

    def count(self, scope: str, step: int = 1) -> int:
        """Advance the counter ``scope`` by ``step`` and return its value before (the first is 0)."""
        with self.transaction() as connection:
            after: int = connection.execute(_COUNT, {"of": scope, "step": step}).scalar_one()
        return after - step

    def peek_count(self, scope: str) -> int:
        """Return what `count` would return next, without advancing."""
        return next((value for (value,) in self.read(_PEEK, of=scope)), 0)

    def raise_count(self, scope: str, value: int) -> None:
        """Make sure that the counter ``scope`` gives out nothing below ``value``."""
        with self.transaction() as connection:
            connection.execute(_RAISE, {"of": scope, "least": value})

    def purge(self) -> bool:
        """Let go of what outlives deleted rows; False when somebody reads the write-ahead log, which has them.

        Statements that were compiled keep the values of their first use, and SQLite the pages that it has read. Those
        with no values of their own stay: to compile all anew would cost the next calls as much as a fork.
        """
        self.may_hold_copies = True
        for key in [key for key, made in self._compiled.items() if _holds_text(made)]:
            del self._compiled[key]
        with self._lock, self._faults():
            connection = self._engine.raw_connection()  # a transaction of SQLAlchemy's would keep the log in use
            try:
                connection.cursor().execute("PRAGMA shrink_memory")
                busy: int = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                connection.close()
        return not busy

    def compact(self) -> bool:
        """Write the file anew if something was deleted, so that no page has a copy; False when others are at work.

        For a thread: it takes a second for each 50 MB or so. Reading goes on meanwhile, and writing waits.
        """
        if not self.may_hold_copies:
            return True
        self.may_hold_copies = False
        busy = 1
        # Locked, or no room for a second file: the next try may find it otherwise.
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self._where, timeout=1.0)) as connection:
            connection.isolation_level = None
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        self.may_hold_copies |= bool(busy)
        return not busy

    def _direct(self) -> sqlite3.Connection:
        """Return the driver's connection, of which there is one; the caller holds the lock."""
        if self._driver is None:
            self._engine.raw_connection().close()  # it connects, and goes back to the pool
        assert self._driver is not None
        return self._driver

    def _connected(self, connection: sqlite3.Connection, _record: Any) -> None:
        self._driver = connection

    def _closed(self, _connection: sqlite3.Connection, _record: Any) -> None:
        self._driver = None

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError as error:
            code = getattr(error.orig, "sqlite_errorcode", None)
            if code != sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                raise StoreUnavailable(self._where, str(error.orig)) from error
            raise SessionEnded from None  # the parameters of the statement are what is not to be kept
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise fault(self._where, getattr(error, "orig", None) or error) from error


def _fetched(cursor: Any, sql: str, given: Mapping[str, str | float]) -> list[sqlite3.Row]:
    cursor.row_factory = sqlite3.Row
    found: list[sqlite3.Row] = cursor.execute(sql, given).fetchall()
    return found


def _create_private(path: Path) -> None:
    # SQLite copies the mode to its -wal and -shm files.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _holds_text(compiled: Compiled) -> bool:
    """Whether a compiled statement has a value of its first use that may be somebody's text."""
    binds = compiled.binds.values() if isinstance(compiled, SQLCompiler) else ()
    return any(bind.value is not None and not isinstance(bind.value, int | float) for bind in binds)


def _engine(path: Path) -> Engine:
    options: dict[str, object] = {"compiled_cache": {}}
    url = URL.create("sqlite", database=str(path))
    engine = create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=0, execution_options=options)
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # we send BEGIN ourselves: the driver's own comes too late for a reader
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    except sqlite3.Error:
        connection.close()  # the pool knows nothing of it yet
        raise


def _begin_immediate(connection: Connection) -> None:
    # Taking the write lock at once means that a transaction never fails half-way because another one wrote.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
