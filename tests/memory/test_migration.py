"""Opened are new databases, those of this version, and of a later one that only adds; no other is touched."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rlm_memory import schema, sessions
from rlm_memory.errors import StoreTooNew, StoreTooOld
from rlm_memory.store import Store

RECORDED = Path(__file__).with_name(f"version{schema.VERSION}.sql")


@pytest.fixture
def used(database: Path) -> Path:
    """A database of this version that holds a session."""
    store = Store.open(database)
    policy = sessions.PolicyText("default", "{}", "")
    sessions.open_session(store, "a", workspace="", policy=policy, idle_seconds=1.0, now=1.0)
    store.close()
    return database


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("version", [1, schema.VERSION - 1, 0, -1])
def test_a_database_of_an_earlier_version_is_refused_and_stays(database: Path, version: int, mode: str) -> None:
    """Its user is told where it is and what to do; a file of another program is none of ours either."""
    _made(
        database, f"PRAGMA journal_mode={mode}", "CREATE TABLE sessions (id TEXT)", f"PRAGMA user_version={version:d}"
    )
    before = database.read_bytes()
    told = rf"{re.escape(str(database))} has version {version}.*move the file aside.*use the version that wrote it"
    with pytest.raises(StoreTooOld, match=told):
        Store.open(database)
    assert database.read_bytes() == before
    assert {path.name for path in database.parent.iterdir()} <= {database.name, "reserve"}
    database.rename(database.with_name("aside"))
    Store.open(database).close()


def test_what_an_earlier_version_has_not_yet_written_to_its_file_is_read_too(database: Path) -> None:
    """A daemon that was killed leaves its last transactions in the log: the version may stand there only."""
    with closing(sqlite3.connect(database)) as writer:
        _run(writer, "PRAGMA journal_mode=WAL", "CREATE TABLE sessions (id TEXT)", "PRAGMA user_version=4")
        with pytest.raises(StoreTooOld, match="has version 4"):
            Store.open(database)


@pytest.mark.parametrize("statements", [[], ["PRAGMA journal_mode=WAL"]], ids=["no byte", "a header"])
def test_a_file_without_tables_becomes_a_database(database: Path, tmp_path: Path, statements: list[str]) -> None:
    """A disk that was full, or a daemon that was killed, may leave one."""
    database.touch()
    _made(database, *statements)
    Store.open(database).close()
    Store.open(tmp_path / "new").close()
    assert _form(database) == _form(tmp_path / "new")


@pytest.mark.parametrize(
    "statement", ["UPDATE counters SET value = 99 WHERE scope = 'oldest reader'", "DROP TABLE counters"]
)
def test_a_database_of_a_newer_version_is_left_alone(used: Path, statement: str) -> None:
    """An older program does not write into what it does not understand."""
    _made(used, statement, "PRAGMA user_version=99")
    before = used.read_bytes()
    with pytest.raises(StoreTooNew, match="has version 99"):
        Store.open(used)
    assert used.read_bytes() == before


def test_a_database_of_a_newer_version_that_only_has_more_is_used(used: Path) -> None:
    """What that version has added stays as it is, and it finds its own version again."""
    _made(
        used, "ALTER TABLE sessions ADD COLUMN later TEXT", "CREATE TABLE later (key INTEGER)", "PRAGMA user_version=99"
    )
    before = _form(used)
    store = Store.open(used)
    policy = sessions.PolicyText("default", "{}", "")
    sessions.open_session(store, "b", workspace="", policy=policy, idle_seconds=1.0, now=1.0)
    store.close()
    assert _form(used) == before
    with closing(sqlite3.connect(used)) as rows:
        assert rows.execute("SELECT id, later FROM sessions ORDER BY id").fetchall() == [("a", None), ("b", None)]


def test_tables_and_columns_that_are_missing_are_added(used: Path, tmp_path: Path) -> None:
    """A release may have added them without another version; what was there stays."""
    _made(used, "DROP TABLE endings", "ALTER TABLE sessions DROP COLUMN unsaved")
    store = Store.open(used)
    assert sessions.get(store, "a").unsaved is None
    store.close()
    Store.open(tmp_path / "new").close()
    assert _form(used) == _form(tmp_path / "new")


def test_the_form_of_this_version_is_the_one_that_was_recorded(database: Path, tmp_path: Path) -> None:
    """But for what is added by itself. Who changes more raises the version, records the form, and writes a step."""
    with closing(sqlite3.connect(database)) as recorded:
        recorded.executescript(RECORDED.read_text())
    Store.open(database).close()
    Store.open(tmp_path / "new").close()
    assert _form(database) == _form(tmp_path / "new")


def _made(database: Path, *statements: str) -> None:
    with closing(sqlite3.connect(database)) as rows:
        _run(rows, *statements)


def _run(rows: sqlite3.Connection, *statements: str) -> None:
    for statement in statements:
        rows.execute(statement)
    rows.commit()


def _form(database: Path) -> dict[str, object]:
    """Each table and index of a database, however they were made."""
    found: dict[str, object] = {}
    with closing(sqlite3.connect(database)) as rows:
        found["version"] = rows.execute("PRAGMA user_version").fetchone()[0]
        for kind, name, text in rows.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"):
            columns = sorted(
                (row[1], row[2].upper(), row[3], row[5]) for row in rows.execute(f"PRAGMA table_info({name})")
            )
            keys = sorted(row[2:5] + row[6:7] for row in rows.execute(f"PRAGMA foreign_key_list({name})"))
            checks = sorted(re.findall(r"CHECK \(.*\)", text, re.IGNORECASE))
            index = re.sub(r"\s+", " ", text).replace('"', "").lower() if kind == "index" else ""
            if not name.startswith("sqlite_"):
                found[name] = columns, keys, checks, "AUTOINCREMENT" in text.upper(), index
    return found
