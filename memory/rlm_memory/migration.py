"""From earlier versions of the database to the present one.

Version 1 keyed its rows by the names of sessions; now no key is ever given out twice. That database is written anew and
takes the place of the old one in one step: what ended sessions left, in rows and in free pages, does not come along. A
process that dies half-way leaves the old database as it was.

Version 2 had other names for tables and columns, and told from the id of a query who had asked it. Its tables,
columns and kept policies are renamed, and its queries numbered, in one transaction.

Version 3 noted of a forked session which one it came from. Now both have a frame, and that note is the frames'.

Version 4 had frames without priorities, edges and leases. They get the columns, and their open children are counted.

All steps are one transaction. Before it, the database is copied to a file beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Table, create_engine

from rlm_memory import frame_schema, lock_schema, schema, work_schema  # noqa: F401 (their tables join the metadata)
from rlm_memory.places import name_of_tree, tree_of
from rlm_memory.rebuilding import add_missing, settle

_KEYED_BY_NAME = 1
_COPY = ".of-version-"
_COPY_SECONDS = 7 * 86_400.0
_OLD_TABLES = {"attachments": "doors", "attachment_events": "door_events"}
_OLD_COLUMNS = {"attachment": "door", "resolved_at": "settled_at"}
"""What version 2 called them, by their names of today."""
_RENAMES = (
    "DROP INDEX doors_by_session",
    "DROP INDEX door_events_by_session",
    "ALTER TABLE doors RENAME TO attachments",
    "ALTER TABLE door_events RENAME TO attachment_events",
    "ALTER TABLE attachment_events RENAME COLUMN door TO attachment",
    "ALTER TABLE journal RENAME COLUMN door TO attachment",
    "ALTER TABLE queries RENAME COLUMN settled_at TO resolved_at",
    "CREATE INDEX attachments_by_session ON attachments (session, ended_at)",
    "CREATE INDEX attachment_events_by_session ON attachment_events (session, number)",
)
_NEW_COLUMNS = (
    "ALTER TABLE query_details ADD COLUMN asked_by TEXT",
    "ALTER TABLE query_details ADD COLUMN number INTEGER",
)
_NUMBERS = (  # a query that a tool had asked had no details
    """
    INSERT OR IGNORE INTO query_details (session, query, mode, input_tokens, output_tokens, cost)
    SELECT session, id, 'deferred', 0, 0, 0.0 FROM queries
    """,
    """
    UPDATE query_details
    SET asked_by = CASE WHEN substr(query, 1, 3) = 'q_t' THEN 'tool' ELSE 'code' END,
        number = CAST(ltrim(query, 'q_t') AS INTEGER)
    """,
)
_NOT_COPIED = {schema.sessions.name, schema.endings.name, schema.grants.name, schema.counters.name}
"""Tables with a step of their own."""
_BUDGETS = """
INSERT INTO budgets
SELECT s.key, count(q.id), coalesce(sum(d.input_tokens + d.output_tokens), 0), coalesce(sum(d.cost), 0.0), 0
FROM sessions s
LEFT JOIN queries q ON q.session = s.key AND q.created_at >= s.created_at
LEFT JOIN query_details d ON d.session = q.session AND d.query = q.id AND d.mode = 'provider'
GROUP BY s.key
"""
_OLD_FORKS = """
SELECT s.key, p.key FROM old.forks f JOIN sessions s ON s.id = f.session JOIN sessions p ON p.id = f.parent
"""
_JOURNAL_BY_FRAME = "CREATE INDEX IF NOT EXISTS journal_by_frame ON journal (frame, number) WHERE frame IS NOT NULL"
_FRAME = f"""
INSERT INTO {frame_schema.frames.name} (
    key, tree, parent, depth, kind, goal, status, author, session, forked_from, created_at, started_at,
    folded, folded_count
) VALUES (?, ?, ?, ?, 'session', ?, 'in_progress', 'fork', ?, ?, ?, ?, 0, 0)
"""
_QUEUE = (
    "ALTER TABLE frames ADD COLUMN priority INTEGER NOT NULL DEFAULT 500",
    "ALTER TABLE frames ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE frames ADD COLUMN closed_above INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE frames ADD COLUMN dependents INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE frames ADD COLUMN open_children INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE frames ADD COLUMN holder TEXT",
    "ALTER TABLE frames ADD COLUMN fence INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE frames ADD COLUMN freed_at FLOAT",
    f"CREATE INDEX frames_ready ON frames (tree, {frame_schema.BASE} DESC, created_at) WHERE {frame_schema.READY}",
    "CREATE INDEX frames_by_holder ON frames (holder) WHERE holder IS NOT NULL",
    """
    UPDATE frames SET open_children = children.number FROM (
        SELECT parent, count(*) AS number FROM frames
        WHERE kind <> 'session' AND status IN ('planned', 'in_progress', 'blocked') GROUP BY parent
    ) AS children WHERE children.parent = frames.key
    """,
    """
    WITH RECURSIVE place(key, above) AS (
        SELECT key, 0 FROM frames WHERE parent IS NULL
        UNION ALL
        SELECT f.key, above + (p.status NOT IN ('planned', 'in_progress'))
        FROM place JOIN frames p ON p.key = place.key JOIN frames f ON f.parent = p.key
    ) UPDATE frames SET closed_above = place.above FROM place WHERE place.key = frames.key
    """,
)
_LIVES = "(state = 'active' or exists (select 1 from old.queries q where q.session = s.id and q.state = 'pending'))"


def copy_beside(path: Path) -> None:
    """Copy a database of an older version before anything is changed: `remove_old_copies` removes it after a week."""
    if not path.stat().st_size:
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        version = old.execute("PRAGMA user_version").fetchone()[0]
        if not _KEYED_BY_NAME < version < schema.VERSION:  # of version 1 what ended sessions left is not to stay
            return
        copy = path.with_name(f"{path.name}{_COPY}{version}")
        copy.unlink(missing_ok=True)
        os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        old.execute("VACUUM INTO ?", (str(copy),))


def remove_old_copies(path: Path) -> None:
    """Remove copies of before an update that nobody has needed for a week."""
    for copy in path.parent.glob(f"{path.name}{_COPY}*"):
        if copy.stat().st_mtime < time.time() - _COPY_SECONDS:
            copy.unlink()


def may_read(connection: Connection) -> bool:
    """Whether a later version has written the database so that this one can use it as it is."""
    least = connection.exec_driver_sql(f"SELECT value FROM counters WHERE scope = '{schema.OLDEST_READER_SCOPE}'")
    oldest = least.scalar()
    return oldest is not None and oldest <= schema.VERSION


def migrate(connection: Connection, found: int) -> None:
    """Go from the version ``found`` to that of today, step by step, in the caller's transaction."""
    while (step := STEPS.get(found)) is not None:
        found = step(connection)
    add_missing(connection, schema.metadata)
    connection.exec_driver_sql(
        f"INSERT OR REPLACE INTO counters VALUES ('{schema.OLDEST_READER_SCOPE}', {schema.OLDEST_READER:d})"
    )
    connection.exec_driver_sql(f"PRAGMA user_version={schema.VERSION:d}")


def rewrite(path: Path) -> None:
    """Write the database ``path`` anew if it is of version 1."""
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        if old.execute("PRAGMA user_version").fetchone()[0] != _KEYED_BY_NAME:
            return
        old.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    engine = create_engine(URL.create("sqlite", database=str(fresh)))
    schema.metadata.create_all(engine)
    engine.dispose()
    with closing(sqlite3.connect(fresh, isolation_level=None)) as new:
        new.execute("ATTACH ? AS old", (str(path),))
        new.execute("BEGIN IMMEDIATE")
        _copy(new)
        new.execute(f"PRAGMA user_version={schema.VERSION:d}")
        new.execute("COMMIT")
    fresh.replace(path)
    for leftover in ("-wal", "-shm"):
        path.with_name(path.name + leftover).unlink(missing_ok=True)


def _from_version_2(connection: Connection) -> int:
    """Give tables, columns and fields of kept policies their names of today. Returns the version that this makes."""
    for statement in (*_RENAMES, *_NEW_COLUMNS, *_NUMBERS):
        connection.exec_driver_sql(statement)
    rows = connection.exec_driver_sql("SELECT key, policy_text, family_text FROM sessions").all()
    for key, text, family in rows:
        values = (*policy_renamed(text), *policy_renamed(family), key)
        connection.exec_driver_sql(
            "UPDATE sessions SET policy_text = ?, policy_digest = ?, family_text = ?, family_digest = ? WHERE key = ?",
            values,
        )
    return 3


def _from_version_3(connection: Connection) -> int:
    """Make frames of the forks. The tables of frames are those of today then."""
    settle(connection, schema.metadata)
    connection.exec_driver_sql(_JOURNAL_BY_FRAME)
    if connection.exec_driver_sql("SELECT 1 FROM sqlite_master WHERE name = 'forks'").first():
        pairs = connection.exec_driver_sql("SELECT session, parent FROM forks ORDER BY session").all()
        _frames_of_forks(connection.exec_driver_sql, [(session, parent) for session, parent in pairs])
        connection.exec_driver_sql("DROP TABLE forks")
    return schema.VERSION


def _from_version_4(connection: Connection) -> int:
    """Give frames what the queue needs to know of them."""
    for statement in _QUEUE:
        connection.exec_driver_sql(statement)
    settle(connection, schema.metadata)
    return schema.VERSION


STEPS: dict[int, Callable[[Connection], int]] = {2: _from_version_2, 3: _from_version_3, 4: _from_version_4}
"""By version, what makes a later one of it; each returns which."""


def asker_in(query: str) -> tuple[str, int]:
    """Return the asker of a query, ``code`` or ``tool``, and its number among theirs, from its old id."""
    digits = query.removeprefix("q_")
    return ("tool", int(digits[1:])) if digits.startswith("t") else ("code", int(digits))


def policy_renamed(text: str | None) -> tuple[str | None, str | None]:
    """Return the JSON of a policy with its section ``doors`` under the name that it has now, and the digest of that."""
    if not text:
        return None, None
    policy = {"attachments" if name == "doors" else name: value for name, value in json.loads(text).items()}
    now = json.dumps(policy, separators=(",", ":"), ensure_ascii=False)
    return now, hashlib.sha256(now.encode()).hexdigest()


def _copy(new: sqlite3.Connection) -> None:
    there = {name for (name,) in new.execute("SELECT name FROM old.sqlite_master WHERE type = 'table'")}
    _copy_sessions(new)
    for table in schema.metadata.sorted_tables:
        if _OLD_TABLES.get(table.name, table.name) in there and table.name not in _NOT_COPIED:
            _copy_table(new, table)
    # Of sessions that had ended it is not known what they could write, nor what became of it since.
    new.execute(
        "INSERT OR IGNORE INTO writable_folders SELECT workspace FROM old.sessions "
        "WHERE workspace <> '' AND id NOT IN (SELECT id FROM sessions)"
    )
    new.execute("INSERT INTO grants SELECT g.* FROM old.grants g JOIN handles USING (handle)")
    for statement in _NUMBERS:
        new.execute(statement)
    _copy_counters(new)
    if "forks" in there:
        _frames_of_forks(new.execute, new.execute(_OLD_FORKS).fetchall())
    if "sqlite_sequence" in there:  # numbers of the journal are not given out twice either
        for name, last in new.execute("SELECT name, seq FROM old.sqlite_sequence").fetchall():
            new.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
            new.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, last))


def _copy_sessions(new: sqlite3.Connection) -> None:
    columns = ", ".join(name for name in _common(new, schema.sessions) if name != "state")
    key, state = "row_number() OVER (ORDER BY created_at)", "CASE state WHEN 'active' THEN 'active' ELSE 'resting' END"
    new.execute(
        f"INSERT INTO sessions (key, state, {columns}) SELECT {key}, {state}, {columns} "
        f"FROM old.sessions s WHERE state <> 'ended' AND {_LIVES}"
    )
    new.execute(
        "INSERT INTO endings (id, how, at) "
        f"SELECT id, state, last_used_at FROM old.sessions s WHERE state = 'ended' OR NOT {_LIVES}"
    )


def _copy_table(new: sqlite3.Connection, table: Table) -> None:
    """Copy what belongs to sessions that live; names in columns that refer to a session become keys."""
    columns = _common(new, table)
    old = _OLD_TABLES.get(table.name, table.name)
    keys = {key.parent.name for key in table.foreign_keys if key.column is schema.sessions.c.key}
    values = [f"{name}_of.key" if name in keys else f"o.{_OLD_COLUMNS.get(name, name)}" for name in columns]
    joins = " ".join(f"JOIN sessions {name}_of ON {name}_of.id = o.{name}" for name in sorted(keys))
    new.execute(f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(values)} FROM old.{old} o {joins}")


def _copy_counters(new: sqlite3.Connection) -> None:
    """Copy the numbers. What a session's queries had used, and the time of providers, is its budget now."""
    new.execute("INSERT INTO counters SELECT * FROM old.counters WHERE scope NOT LIKE 'provider %'")
    new.execute("INSERT INTO counters SELECT 'session key', coalesce(max(key), 0) FROM sessions")
    new.execute(_BUDGETS)
    for key, scope in list(_time_scopes(new)):
        found = new.execute("SELECT value FROM old.counters WHERE scope = ?", (scope,)).fetchone()
        if found is not None:
            new.execute("UPDATE budgets SET milliseconds = ? WHERE session = ?", (found[0], key))


def _time_scopes(new: sqlite3.Connection) -> Iterator[tuple[int, str]]:
    for key, name, created in new.execute("SELECT key, id, created_at FROM sessions"):
        yield key, f"provider {name} {created}"


def _common(new: sqlite3.Connection, table: Table) -> list[str]:
    """The columns of a table that the old database has too."""
    old = _OLD_TABLES.get(table.name, table.name)
    there = {row[1] for row in new.execute(f"PRAGMA old.table_info({old})")}
    return [column.name for column in table.columns if _OLD_COLUMNS.get(column.name, column.name) in there]


def _frames_of_forks(execute: Callable[..., Any], forks: Sequence[tuple[int, int]]) -> None:
    """Write a frame for each session that was forked or forked from: the first of a place is the root of its tree."""
    known = {key: rest for key, *rest in execute("SELECT key, id, workspace, created_at FROM sessions").fetchall()}
    source = {session: parent for session, parent in forks if {session, parent} <= known.keys()}
    frames: dict[int, tuple[int, str, int]] = {}
    """By session: key, tree and depth of its frame."""
    roots: dict[str, int] = {}

    def frame_of(session: int) -> tuple[int, str, int]:
        if session in frames:
            return frames[session]
        name, workspace, created = known[session]
        tree, goal, parent, depth = tree_of(workspace, name), name, None, 0
        if session in source:
            parent, tree, above = frame_of(source[session])
            depth = above + 1
        elif tree in roots:
            parent, depth = roots[tree], 1
        key = len(frames) + 1
        if parent is None:
            roots[tree], goal = key, name_of_tree(tree)
        values = (key, tree, parent, depth, goal, session, source.get(session), created, created)
        execute(_FRAME, values)
        frames[session] = key, tree, depth
        return frames[session]

    for session in sorted(source):
        frame_of(session)
    if frames:
        execute("INSERT INTO counters VALUES ('frame', ?)", (len(frames),))
