"""The database: transactions, counters, and what it says when it cannot be used."""

import ctypes
import random
import re
import resource
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from rlm_memory import sessions
from rlm_memory.errors import StoreUnavailable
from rlm_memory.records import Value
from rlm_memory.store import Store


def open_session(store: Store, name: str) -> None:
    sessions.open_session(
        store, name, workspace="", policy=sessions.PolicyText("default", "{}", ""), idle_seconds=1.0, now=0.0
    )


def test_rows_survive_closing_and_reopening(database: Path) -> None:
    """What was committed is there for the next process."""
    first = Store.open(database)
    open_session(first, "a")
    first.close()
    second = Store.open(database)
    assert sessions.get(second, "a").policy == "default"
    second.close()


def test_an_exception_inside_a_transaction_undoes_all_of_it(store: Store) -> None:
    """Nested functions join the outer transaction and are rolled back with it."""

    def fail_after_a_write() -> None:
        with store.transaction():
            open_session(store, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_write()
    assert sessions.find(store, "a") is None
    open_session(store, "a")  # the store works on


def test_what_is_read_outside_a_transaction_is_what_was_committed(store: Store) -> None:
    """Inside one it is what that has written so far; a fault is told in either, and the store works on."""
    named = "SELECT id FROM sessions WHERE id = :id"
    with store.transaction():
        open_session(store, "a")
        assert [row["id"] for row in store.rows(named, id="a")] == ["a"]
    assert [row["id"] for row in store.rows(named, id="a")] == ["a"]
    with pytest.raises(StoreUnavailable, match="no such table"):
        store.rows("SELECT * FROM no_table")
    with pytest.raises(StoreUnavailable, match="no such table"), store.transaction():
        store.rows("SELECT * FROM no_table")
    assert store.rows(named, id="b") == []
    assert store.purge(), "no reading is left open"


def test_rows_that_the_driver_writes_are_written_together_or_not_at_all(store: Store) -> None:
    """They join the transaction that is open; watchers hear of them as of any other."""
    told = []
    store.watch(lambda: told.append(1))
    add = "INSERT INTO counters (scope, value) VALUES (:scope, :value)"
    one: dict[str, Value] = {"scope": "one", "value": 1}
    other: dict[str, Value] = {"scope": "other", "value": 2}
    store.run_each(add, [one, other])
    assert (store.peek_count("one"), store.peek_count("other"), len(told)) == (1, 2, 1)
    with store.transaction():  # nobody wakes another by looking
        store.rows("SELECT * FROM counters")
    assert len(told) == 1
    with pytest.raises(StoreUnavailable, match="UNIQUE"):
        store.run_each(add, [{"scope": "third", "value": 3}, one])
    assert (store.peek_count("third"), store.rollbacks, len(told)) == (0, 1, 1)

    def fail_after_a_write() -> None:
        with store.transaction():
            store.run_each(add, [{"scope": "third", "value": 3}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_write()
    assert store.peek_count("third") == 0
    open_session(store, "a")  # the store works on


def test_no_page_keeps_a_copy_of_what_was_deleted(store: Store, database: Path) -> None:
    """SQLite leaves copies in pages that it has balanced, whatever secure_delete says; all rows that stay do stay."""
    dice = random.Random(1)
    owners: dict[bytes, int] = {}
    with store.transaction():
        store.run("CREATE TABLE notes (id INTEGER PRIMARY KEY, owner INTEGER, text TEXT)")
        store.run("CREATE INDEX by_owner ON notes (owner, text)")
    for number in range(400):
        with store.transaction():
            owner, mark = dice.randrange(8), f"MARK{number}z"
            owners[mark.encode()] = owner
            id_, text = dice.randrange(10**9), mark + "x" * dice.randrange(900)
            store.run("INSERT INTO notes VALUES (:id, :owner, :text)", id=id_, owner=owner, text=text)
            if number % 3 == 0:
                store.run("UPDATE notes SET text = text || 'yyyyyyyyyyyy' WHERE owner = :owner", owner=owner)

    def kept() -> set[bytes]:
        return set(re.findall(rb"MARK\d+z", database.read_bytes()))

    store.run("DELETE FROM notes WHERE owner < 4")
    assert store.purge()
    wanted = {mark for mark, owner in owners.items() if owner >= 4}
    assert kept() > wanted, "the test has lost its subject"
    told = [store.may_hold_copies, store.compact(), store.may_hold_copies]
    assert told == [True, True, False]
    assert kept() == wanted
    assert len(store.rows("SELECT id FROM notes")) == len(wanted)


def test_a_purge_lets_go_of_what_statements_were_given(store: Store) -> None:
    """P4: the driver keeps each prepared statement with the values of its last use, a user's texts among them."""
    assert store.scalar("SELECT length(:text)", text="x" * (64 << 20)) == 64 << 20
    held = _resident()
    store.purge()
    assert held - _resident() > 32 << 20


def _resident() -> int:
    ctypes.CDLL(None).malloc_trim(0)  # else the allocator may keep what is freed, as other tests of the process set it
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_file_that_others_read_is_compacted_later(store: Store, database: Path) -> None:
    """A reader keeps the log in use, so that there may be copies still."""
    open_session(store, "a")
    with closing(sqlite3.connect(database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM sessions").fetchall()
        open_session(store, "b")
        assert not store.compact()
        assert store.may_hold_copies
    assert store.compact()


def test_counters_never_repeat_and_are_kept(database: Path) -> None:
    """Numbers go up across restarts, and a raise never lowers one."""
    store = Store.open(database)
    assert [store.count("x"), store.count("x"), store.count("y")] == [0, 1, 0]
    store.raise_count("x", 10)
    store.raise_count("x", 3)
    store.close()
    again = Store.open(database)
    assert again.peek_count("x") == 10
    assert again.count("x") == 10
    again.close()


def test_the_database_is_private_to_the_user(store: Store, database: Path) -> None:
    """The file and its companions are readable by the owner only."""
    open_session(store, "a")
    files = list(database.parent.glob(database.name + "*"))
    assert len(files) == 3
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_a_file_that_is_no_database_is_refused_in_plain_words(database: Path) -> None:
    """The message names the file and says what to do."""
    database.write_bytes(b"not a database, " * 100)
    with pytest.raises(StoreUnavailable, match=r"rlm\.sqlite3 cannot be used.*move the file away"):
        Store.open(database)


def test_a_folder_that_does_not_exist_is_refused_in_plain_words(tmp_path: Path) -> None:
    """An operating system error becomes a fault with the reason."""
    with pytest.raises(StoreUnavailable, match="No such file or directory"):
        Store.open(tmp_path / "missing" / "db")


def test_readers_see_rows_while_the_daemon_has_the_database_open(store: Store, database: Path) -> None:
    """The write-ahead log lets the command line read beside the daemon."""
    open_session(store, "a")
    beside = sqlite3.connect(database)
    assert beside.execute("select id from sessions").fetchall() == [("a",)]
    beside.close()


def test_a_purge_keeps_what_it_has_where_the_file_was_moved_away(store: Store, database: Path) -> None:
    """A new file in its place would be empty, and everybody could read it."""
    open_session(store, "a")
    database.rename(database.with_name("aside"))
    assert not store.purge()
    assert not database.exists()
    assert sessions.get(store, "a").policy == "default"
