"""Databases of earlier versions become the present one, and lose nothing that lives."""

import hashlib
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rlm_memory import attachments, budgets, contexts, handles, journal, queries, schema, sessions
from rlm_memory.errors import StoreUnavailable
from rlm_memory.frames import rows, tree
from rlm_memory.frames.states import Kind, Status
from rlm_memory.queries import QueryState
from rlm_memory.sessions import How, SessionStatus
from rlm_memory.store import Store
from rlm_memory.work.ready import ready

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
    assert (live.state, live.workspace, live.created_at) == (SessionStatus.ACTIVE, "/live", 10.0)
    assert contexts.names(upgraded, live.key) == ["log"]
    assert handles.resolve(upgraded, "ctx_live_log_001", late).session == live.key
    (query,) = queries.of_session(upgraded, live.key)
    assert (query.answer, query.asked_by, query.number, query.resolved_at) == ("of live", queries.Asker.CODE, 0, 2.0)
    assert [cell.code for cell in journal.of_session(upgraded, live.key)] == ["of live"]
    assert tree.parents(upgraded, [late.key]) == {late.key: "live"}
    assert budgets.used(upgraded, live.key) == budgets.Used(milliseconds=1500)
    assert queries.next_in_code(upgraded, "over") == 1
    assert sessions.new_key(upgraded) > max(row.key for row in sessions.all_sessions(upgraded))


def test_what_waits_for_answers_rests_and_what_had_ended_is_gone(upgraded: Store, database: Path) -> None:
    """Rows that an ended session had left, and free pages, are not in the new file."""
    waits = sessions.get(upgraded, "waits")
    assert (waits.state, [row.state for row in queries.of_session(upgraded, waits.key)]) == (
        SessionStatus.RESTING,
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


def test_front_ends_and_queries_of_version_2_are_still_at_their_sessions(database: Path) -> None:
    """Its tables and columns had other names, and so had a section of the policies; numbers stood in ids only."""
    policy = json.dumps({"name": "é", "doors": {"mode": "watch"}}, ensure_ascii=False)
    with closing(sqlite3.connect(database)) as rows:
        rows.execute("PRAGMA journal_mode=WAL")
        rows.executescript(SCHEMA.with_name("version2.sql").read_text())
        columns = (
            "key, id, state, workspace, policy, idle_seconds, created_at, last_used_at, policy_text, policy_digest"
        )
        values = (1, "live", "active", "/w", "default", 300.0, 1.0, 2.0, policy, "of that text")
        rows.execute(f"INSERT INTO sessions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        rows.execute("INSERT INTO doors VALUES ('d1', 1, 'watch', 'digest', 3.0, NULL, 0)")
        rows.execute("INSERT INTO door_events (door, session, event, at) VALUES ('d1', 1, 'opened', 4.0)")
        rows.execute(
            "INSERT INTO journal (session, author, code, started_at, ended_at, status, output, queries, size, door) "
            "VALUES (1, 'notebook', '1', 1, 2, 'ok', '', '[]', 9, 'd1')"
        )
        columns = "session, id, ordinal, prompt, state, answer, created_at, settled_at"
        for query, order in (("q_t002", 0), ("q_007", 1)):
            rows.execute(
                f"INSERT INTO queries ({columns}) VALUES (1, ?, ?, 'p', 'answered', 'a', 5.0, 7.5)", (query, order)
            )
        rows.execute("INSERT INTO query_details VALUES (1, 'q_007', 'provider', NULL, 'm', 3, 4, 0.5, 1)")
        rows.commit()
    for _ in range(2):  # the second opening finds the names as they are
        store = Store.open(database)
        live = sessions.get(store, "live")
        assert json.loads(live.policy_text or "") == {"name": "é", "attachments": {"mode": "watch"}}
        assert live.policy_digest == hashlib.sha256((live.policy_text or "").encode()).hexdigest()
        assert (live.family_text, live.family_digest) == (None, None)
        assert [row.id for row in attachments.of_sessions(store, live.key)] == ["d1"]
        assert [event.event for event in attachments.events(store, live.key)] == ["opened"]
        assert [cell.attachment for cell in journal.of_session(store, live.key)] == ["d1"]
        tool, code = queries.of_session(store, live.key)
        assert (tool.id, tool.asked_by, tool.number, tool.resolved_at) == ("q_t002", queries.Asker.TOOL, 2, 7.5)
        assert (code.id, code.asked_by, code.number, code.resolved_at) == ("q_007", queries.Asker.CODE, 7, 7.5)
        assert (code.mode, code.answered_by, code.recursive, code.output_tokens) == ("provider", "m", True, 4)
        store.close()


@pytest.fixture
def with_forks(database: Path, tmp_path: Path) -> Path:
    """A database of version 3: in a repository, a fork of a fork and one in a worktree's session; one by itself."""
    repository, beside = tmp_path / "repo", tmp_path / "beside"
    (repository / ".git" / "worktrees" / "beside").mkdir(parents=True)
    (repository / ".git" / "worktrees" / "beside" / "commondir").write_text("../..\n")
    beside.mkdir()
    (beside / ".git").write_text(f"gitdir: {repository}/.git/worktrees/beside\n")
    with closing(sqlite3.connect(database)) as old:
        old.execute("PRAGMA journal_mode=WAL")
        old.executescript(SCHEMA.with_name("version3.sql").read_text())
        columns = "key, id, state, workspace, policy, idle_seconds, created_at, last_used_at"
        made = [("trunk", repository), ("branch", repository), ("twig", repository), ("wt", beside), ("wt-f1", beside)]
        for key, (name, workspace) in enumerate([*made, ("alone", repository)], 1):
            values = (key, name, "active", str(workspace), "default", 300.0, 1.0, 2.0)
            old.execute(f"INSERT INTO sessions ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        old.executemany("INSERT INTO forks VALUES (?, ?)", [(2, 1), (3, 2), (5, 4)])
        old.execute(
            "INSERT INTO journal (session, author, code, started_at, ended_at, status, output, queries, size) "
            "VALUES (1, 'agent', '1', 1, 2, 'ok', '', '[]', 9)"
        )
        old.commit()
    return database


def test_forks_of_version_3_are_frames_of_one_tree(with_forks: Path, tmp_path: Path) -> None:
    """F-11: what was noted of forks goes into the tree of the repository; what forked nothing has no frame."""
    for _ in range(2):  # the second opening finds them as they are
        store = Store.open(with_forks)
        root = rows.root_of(store, str(tmp_path / "repo" / ".git"))
        assert root is not None
        shape = [(row.id, row.parent, row.depth, row.goal, row.session) for row in rows.whole(store, root.key)]
        assert shape == [
            ("f1", None, 0, "repo", 1),
            ("f2", 1, 1, "branch", 2),
            ("f4", 1, 1, "wt", 4),
            ("f3", 2, 2, "twig", 3),
            ("f5", 4, 2, "wt-f1", 5),
        ]
        assert {(row.kind, row.status) for row in rows.whole(store, root.key)} == {(Kind.SESSION, Status.IN_PROGRESS)}
        assert tree.parents(store, range(1, 7)) == {2: "trunk", 3: "branch", 5: "wt"}
        assert [cell.frame for cell in journal.of_session(store, 1)] == [None]
        with store.transaction() as connection:
            names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
        assert "journal_by_frame" in names
        assert "forks" not in names
        store.close()
    store = Store.open(with_forks)
    assert tree.plan(store, tree.Plan("next"), 1, author="t", now=9.0).id == "f6"
    store.close()


def test_frames_of_version_4_can_be_claimed(database: Path) -> None:
    """E-8: what they wait for is counted, and nothing that ran when there were no leases is handed out."""
    with closing(sqlite3.connect(database)) as old:
        old.executescript(SCHEMA.with_name("version4.sql").read_text())
        columns = "key, tree, parent, depth, kind, goal, status, author, created_at, folded, folded_count"
        for key, parent, kind, status in (
            (1, None, "session", "in_progress"),
            (2, 1, "story", "in_progress"),
            (3, 2, "task", "planned"),
            (4, 2, "task", "completed"),
            (5, 1, "task", "blocked"),
            (6, 5, "task", "planned"),
            (7, 1, "task", "in_progress"),
        ):
            values = (key, "/t", parent, 1, kind, "g", status, "a", 1.0, 0, 0)
            old.execute(f"INSERT INTO frames ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        old.commit()
    for _ in range(2):  # the second opening finds them as they are
        store = Store.open(database)
        found = [rows.get(store, key) for key in range(1, 8)]
        assert [row.open_children for row in found] == [3, 1, 0, 0, 1, 0, 0]
        assert [row.closed_above for row in found] == [0, 0, 0, 0, 0, 1, 0]
        assert {(row.priority, row.waiting, row.holder, row.fence) for row in found} == {(500, 0, None, 0)}
        assert [found.id for found in ready(store, "/t", now=2.0, most=9)] == ["f3"]
        with store.transaction() as connection:
            plan = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE name LIKE 'frames_ready'").all()
        assert len(plan) == 1
        store.close()


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_an_older_database_gets_the_form_of_a_new_one(database: Path, tmp_path: Path, version: int) -> None:
    """Tables, conditions, keys and indexes; a copy of what was there lies beside it, for a week."""
    _recorded(database, version)
    Store.open(database).close()
    Store.open(tmp_path / "new").close()
    assert _form(database) == _form(tmp_path / "new")
    copies = list(tmp_path.glob("*.of-version-*"))
    if version == 1:  # what its ended sessions had left in it is to go
        assert copies == []
        return
    (copy,) = copies
    assert (copy.name, stat.S_IMODE(copy.stat().st_mode)) == (f"rlm.sqlite3.of-version-{version}", 0o600)
    with closing(sqlite3.connect(copy)) as before:
        assert before.execute("PRAGMA user_version").fetchone() == (version,)
    Store.open(database).close()
    assert copy.exists()
    os.utime(copy, (1.0, 1.0))
    Store.open(database).close()
    assert not copy.exists()


def test_a_table_is_written_anew_whose_conditions_have_changed(database: Path, tmp_path: Path) -> None:
    """With its rows, what belongs to them, its indexes and its next number."""
    _recorded(database, 4)
    with closing(sqlite3.connect(database)) as old:
        text = old.execute("SELECT sql FROM sqlite_master WHERE name = 'sessions'").fetchone()[0]
        narrower = re.sub(r"state in \('active', 'resting'\)", "state in ('active')", text, flags=re.IGNORECASE)
        assert narrower != text
        text = old.execute("SELECT sql FROM sqlite_master WHERE name = 'journal'").fetchone()[0]
        laxer = text.replace("code TEXT NOT NULL", "code TEXT")
        assert laxer != text
        old.executescript(f"DROP TABLE sessions; {narrower}; DROP TABLE journal; {laxer};")
        columns = "key, id, state, workspace, policy, idle_seconds, created_at, last_used_at"
        old.execute(f"INSERT INTO sessions ({columns}) VALUES (1, 's', 'active', '', 'default', 1, 1, 1)")
        columns = "session, author, code, started_at, ended_at, status, output, queries, size"
        for code in ("1", "2", "3"):
            values = f"1, 'agent', '{code}', 1, 2, 'ok', '', '[]', 9"
            old.execute(f"INSERT INTO journal ({columns}) VALUES ({values})")
        old.execute("DELETE FROM journal WHERE number = 3")
        old.commit()
    store = Store.open(database)
    session = sessions.get(store, "s")
    assert [cell.code for cell in journal.of_session(store, session.key)] == ["1", "2"]
    sessions.rest(store, session.key, None)
    store.close()
    Store.open(tmp_path / "new").close()
    assert _form(database) == _form(tmp_path / "new")
    with closing(sqlite3.connect(database)) as now:
        assert now.execute("SELECT seq FROM sqlite_sequence WHERE name = 'journal'").fetchone() == (3,)


def test_steps_that_fail_leave_the_database_as_it_was(database: Path) -> None:
    """All of them are one transaction: what refers to nothing ends it."""
    _recorded(database, 4)
    with closing(sqlite3.connect(database)) as old:
        columns = "session, author, code, started_at, ended_at, status, output, queries, size"
        old.execute(f"INSERT INTO journal ({columns}) VALUES (77, 'agent', '1', 1, 2, 'ok', '', '[]', 9)")
        old.commit()
    before = _form(database)
    with pytest.raises(StoreUnavailable, match="rows would refer to what is not there"):
        Store.open(database)
    assert _form(database) == before


def test_the_form_of_this_version_is_the_one_that_was_recorded(database: Path, tmp_path: Path) -> None:
    """But for what is added by itself. Who changes more raises the version, records the form, and writes a step."""
    _recorded(database, schema.VERSION)
    Store.open(database).close()
    Store.open(tmp_path / "new").close()
    assert _form(database) == _form(tmp_path / "new")


def _recorded(database: Path, version: int) -> None:
    with closing(sqlite3.connect(database)) as old:
        old.executescript(SCHEMA.with_name(f"version{version}.sql").read_text())
        old.commit()


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
            index = re.sub(r"\s+", " ", text).lower() if kind == "index" else ""
            if not name.startswith("sqlite_"):
                found[name] = columns, keys, checks, "AUTOINCREMENT" in text.upper(), index
    return found
