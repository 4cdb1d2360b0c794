"""One SQLite database in WAL mode behind SQLAlchemy Core: transactions, counters, faults in plain words.

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
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, Executable, bindparam, create_engine, event
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

Value = str | bytes | int | float | None
"""What a column may hold."""
Given = Mapping[str, object] | Sequence[Mapping[str, object]] | None
"""The values of a statement; for a statement that is executed several times, those of each execution."""

_counters = schema.counters
# A cell uses counters several times, and building a statement takes longer than executing it.
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
    """The database. Open it with `Store.open`; the functions of the other modules take it as first argument."""

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
        store = cls(_engine(path), str(path))
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
            with self._engine.begin() as connection:
                migration.add_missing(connection)
            self.purge()

    def close(self) -> None:
        """Close every connection. The store cannot be used afterwards."""
        self._engine.dispose()

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
        with self._lock, self._faults():
            self._direct().execute(f"PRAGMA secure_delete={how}")

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Yield a connection inside a transaction, which is committed at the end and rolled back by an exception.

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
            for callback in tuple(self._watchers):
                callback()

    def run(self, statement: Executable | str, given: Given = None, /, **named: Value) -> int:
        """Execute a statement in the open transaction, or in one of its own. Return how many rows it changed."""
        with self.transaction() as connection:
            if isinstance(statement, str):
                return self._direct().execute(statement, named).rowcount
            return connection.execute(statement, given).rowcount

    def run_each(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        """Execute a statement once with each of the rows, in the open transaction or in one of its own."""
        self.write(sql, rows)

    def returned(self, sql: str, /, **named: Value) -> list[sqlite3.Row]:
        """Return the rows of a statement that writes, executed in the open transaction or in one of its own."""
        with self.transaction():
            return _fetched(self._direct().cursor(), sql, named)

    def rows(self, statement: Executable | str, given: Given = None, /, **named: Value) -> Sequence[Any]:
        """Return the rows that a statement reads. Outside a transaction it begins none, which would take longer."""
        if isinstance(statement, str):
            with self._lock, self._faults():
                return _fetched(self._direct().cursor(), statement, named)
        with self.transaction() as connection:
            return connection.execute(statement, given).mappings().all()

    def row(self, statement: Executable | str, given: Given = None, /, **named: Value) -> Any:
        """Return the first row that a statement reads, or None."""
        if isinstance(statement, str):
            with self._lock, self._faults():
                cursor = self._direct().cursor()
                cursor.row_factory = sqlite3.Row
                try:
                    return cursor.execute(statement, named).fetchone()
                finally:
                    cursor.close()  # an open statement would keep its snapshot, and the log in use
        with self.transaction() as connection:
            return connection.execute(statement, given).mappings().first()

    def scalars(self, statement: Executable | str, given: Given = None, /, **named: Value) -> list[Any]:
        """Return the first value of each row that a statement reads."""
        if isinstance(statement, str):
            return [row[0] for row in self.rows(statement, **named)]
        with self.transaction() as connection:
            return list(connection.execute(statement, given).scalars())

    def scalar(self, sql: str, /, **named: Value) -> Any:
        """Return the first value of the first row that a statement reads, or None."""
        found = self.row(sql, **named)
        return None if found is None else found[0]

    def read(self, sql: str, **given: str | float) -> list[sqlite3.Row]:
        """Read rows through the driver directly, which takes a tenth of the time: for what every call reads.

        Outside a transaction it begins none, which would take longer than the reading.
        """
        with self._lock, self._faults():
            return _fetched(self._direct().cursor(), sql, given)

    def write(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Execute a statement for each of the rows through the driver directly: for what is written often.

        It runs as a transaction, or as part of the open one.
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
            for callback in tuple(self._watchers):
                callback()

    def watch(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call ``told`` after each transaction, in its thread, whatever it did. Return a function that stops this.

        The next transaction waits for the call, so it must do next to nothing.
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
        """Make sure that the counter ``scope`` never returns a value below ``value``."""
        with self.transaction() as connection:
            connection.execute(_RAISE, {"of": scope, "least": value})

    def purge(self) -> bool:
        """Remove what outlives deleted rows. Return False if a reader holds the write-ahead log, which contains them.

        Compiled statements keep the values of their first use, and SQLite keeps the pages that it has read. Statements
        without values of their own stay: compiling all of them again would cost the next calls as much as a fork.
        """
        self.may_hold_copies = True
        for key in [key for key, statement in self._compiled.items() if _holds_text(statement)]:
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
        """Rewrite the file if something was deleted, so that no page has a copy. Return False if others are at work.

        Call it in a thread: it takes about a second per 50 MB. Reads continue meanwhile, and writes wait.
        """
        if not self.may_hold_copies:
            return True
        self.may_hold_copies = False
        busy = 1
        # Locked, or no room for a second file: the next attempt may succeed.
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self._where, timeout=1.0)) as connection:
            connection.isolation_level = None
            connection.execute("PRAGMA secure_delete=ON")
            connection.execute("VACUUM")
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        self.may_hold_copies |= bool(busy)
        return not busy

    def _direct(self) -> sqlite3.Connection:
        """Return the driver's only connection; the caller holds the lock."""
        if self._driver is None:
            self._engine.raw_connection().close()  # it connects, and returns to the pool
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
        except (IntegrityError, sqlite3.IntegrityError) as error:
            refused = getattr(error, "orig", None) or error
            if getattr(refused, "sqlite_errorcode", None) != sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
                raise StoreUnavailable(self._where, str(refused)) from error
            raise SessionEnded from None  # the statement's parameters must not be kept
        except (SQLAlchemyError, sqlite3.Error) as error:
            raise fault(self._where, getattr(error, "orig", None) or error) from error


def _fetched(cursor: Any, sql: str, given: Mapping[str, Value]) -> list[sqlite3.Row]:
    cursor.row_factory = sqlite3.Row
    found: list[sqlite3.Row] = cursor.execute(sql, given).fetchall()
    return found


def _create_private(path: Path) -> None:
    # SQLite copies the mode to its -wal and -shm files.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _holds_text(compiled: Compiled) -> bool:
    """Whether a compiled statement keeps a value of its first use that may be a user's text."""
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
    connection.isolation_level = None  # we send BEGIN ourselves: the driver sends its own too late for a reader
    try:
        for pragma in _PRAGMAS:
            connection.execute(pragma)
    except sqlite3.Error:
        connection.close()  # the pool does not know it yet
        raise


def _begin_immediate(connection: Connection) -> None:
    # Take the write lock at once, so that a transaction never fails half-way because another one wrote.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
