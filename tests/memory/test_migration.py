"""A database of version 1, keyed by names of sessions, becomes one that is keyed by their lives."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rlm_memory import budgets, contexts, handles, journal, queries, sessions
from rlm_memory.queries import QueryState
from rlm_memory.sessions import How, SessionState
from rlm_memory.store import Store

SCHEMA = Path(__file__).with_name("version1.sql")
GONE = "MARK-of-an-ended-session"


@pytest.fixture
def old(database: Path) -> Path:
    """A database of version 1 with sessions in every state, and free pages of deleted rows."""
    with closing(sqlite3.connect(database)) as rows:
        rows.execute("PRAGMA journal_mode=WAL")
        rows.executescript(SCHEMA.read_text())
        for number, (name, state) in enumerate(
            [("live", "active"), ("waits", "expired"), ("idled", "expired"), ("over", "ended"), ("late", "active")]
        ):
            values = (name, state, f"/{name}", "default", 300.0, 10.0 + number, 20.0)
            rows.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            said = GONE if state == "ended" or name == "idled" else f"of {name}"
            pending = "pending" if name == "waits" else "answered"
            rows.execute(
                "INSERT INTO queries VALUES (?, 'q_000', 1, ?, NULL, ?, ?, NULL, 1, 2)", (name, said, pending, said)
            )
            rows.execute(
                "INSERT INTO journal (session, author, code, started_at, ended_at, status, output, queries, size) "
                "VALUES (?, 'agent', ?, 1, 2, 'ok', '', '[]', 9)",
                (name, said),
            )
            rows.execute("INSERT INTO counters VALUES (?, 1)", (f"query {name}",))
        rows.execute("INSERT INTO contexts VALUES ('live','log','d1',1,1,'log','{}','loaded',1,1,1)")
        rows.execute("INSERT INTO handles VALUES ('ctx_live_log_001','live','log','d1',1,1,'log','{}',1,1)")
        rows.execute("INSERT INTO grants VALUES ('ctx_live_log_001', 'session', 'late')")
        rows.execute("INSERT INTO forks VALUES ('late', 'live')")
        rows.execute("INSERT INTO counters VALUES ('provider live 10.0', 1500)")
        columns = "author, code, started_at, ended_at, status, output, queries, size"
        rows.execute(
            f"INSERT INTO journal (session, {columns}) SELECT session, author, ?, 1, 2, 'ok', '', '[]', 9 FROM journal",
            (GONE * 500,),
        )
        rows.execute("DELETE FROM journal WHERE number > 5")
        rows.commit()
    return database


@pytest.fixture
def upgraded(old: Path) -> Iterator[Store]:
    store = Store.open(old)
    yield store
    store.close()


def test_what_lives_is_taken_over_under_keys(upgraded: Store) -> None:
    """An update loses no session, no text, no answer, and no number."""
    live, late = sessions.get(upgraded, "live"), sessions.get(upgraded, "late")
    assert (live.state, live.workspace, live.created_at) == (SessionState.ACTIVE, "/live", 10.0)
    assert contexts.names(upgraded, live.key) == ["log"]
    assert handles.resolve(upgraded, "ctx_live_log_001", late).session == live.key
    assert [row.answer for row in queries.of_session(upgraded, live.key)] == ["of live"]
    assert [cell.code for cell in journal.of_session(upgraded, live.key)] == ["of live"]
    assert sessions.parents(upgraded, [late.key]) == {late.key: "live"}
    assert budgets.used(upgraded, live.key) == budgets.Used(milliseconds=1500)
    assert queries.next_in_code(upgraded, "over") == 1
    assert sessions.new_key(upgraded) > max(row.key for row in sessions.all_sessions(upgraded))


def test_what_waits_for_answers_rests_and_what_had_ended_is_gone(upgraded: Store, database: Path) -> None:
    """Rows that an ended session had left, and free pages, are not in the new file."""
    waits = sessions.get(upgraded, "waits")
    assert (waits.state, [row.state for row in queries.of_session(upgraded, waits.key)]) == (
        SessionState.RESTING,
        [QueryState.PENDING],
    )
    assert [sessions.find(upgraded, name) for name in ("idled", "over")] == [None, None]
    ending = sessions.ending_of(upgraded, "idled")
    assert ending is not None
    assert ending.how is How.EXPIRED
    assert sessions.writable(upgraded) == {"/idled", "/over"}  # no policy is read where they may have written one
    assert [path.name for path in database.parent.iterdir() if GONE.encode() in path.read_bytes()] == []


def test_a_policy_is_not_made_up_for_rows_that_hold_none(upgraded: Store) -> None:
    """Version 1 kept where a policy was read; the service reads it again, if it is a name."""
    live = sessions.get(upgraded, "live")
    assert (live.policy, live.policy_text, live.policy_digest) == ("default", None, None)
    assert (live.family_text, live.family_digest) == (None, None)


def test_a_database_is_rewritten_once(old: Path) -> None:
    """The second opening finds the keys as they are, and so does one after a rewriting that was cut short."""
    old.with_name("rlm.sqlite3.new").write_bytes(b"half a database")
    first = Store.open(old)
    key = sessions.get(first, "late").key
    first.close()
    second = Store.open(old)
    assert sessions.get(second, "late").key == key
    second.close()
    assert not old.with_name("rlm.sqlite3.new").exists()
