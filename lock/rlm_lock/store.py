"""The results of scans, in one SQLite file for each repository: extracts by content, and versions by working tree.

An extract depends on a file's content and on its reader (its key), so all working trees of a repository share them. A
version is the list of a tree's paths with the content of each. Paths change rarely: versions with equal paths share
them too. Only the newest version of a tree has the results of `lstat`, for the next scan.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.listing.table import HASH, FileTable

KEPT_VERSIONS = 10
"""Versions of a working tree that are kept."""
_FORMAT = 1
_SCHEMA = """
CREATE TABLE extracts (
    blob BLOB NOT NULL, key TEXT NOT NULL, note TEXT NOT NULL, extract BLOB NOT NULL, added INTEGER NOT NULL,
    PRIMARY KEY (blob, key)
);
CREATE TABLE path_lists (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, packed BLOB NOT NULL);
CREATE TABLE versions (
    root BLOB NOT NULL, version INTEGER NOT NULL, tree TEXT NOT NULL, created REAL NOT NULL,
    paths INTEGER NOT NULL REFERENCES path_lists (id), blobs BLOB NOT NULL, modes BLOB NOT NULL,
    PRIMARY KEY (root, version)
);
CREATE TABLE statuses (root BLOB PRIMARY KEY, packed BLOB NOT NULL);
"""
_ARRAYS = ("ctimes", "mtimes", "sizes", "inodes", "modes")
_STATUS_BYTES = 8 + 8 + 8 + 8 + 4 + 1
_LAST_SEEN_SECONDS = 3600
"""How long unreferenced extracts are kept: another scan may be about to create a version that has them."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a working tree."""

    number: int
    tree: str
    created: float


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """What a parse helper made of a content: why not everything is known, and the packed extract."""

    blob: bytes
    key: str
    note: str
    extract: bytes


class Store:
    """The store of one repository. A context manager; only one process and thread uses an object of it."""

    def __init__(self, folder: Path, root: bytes) -> None:
        """Open it, or create it.  Args: root, the working tree whose versions are meant."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path, self._root = folder / "lock.db", root
        self._database = self._opened()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._database.close()

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._connected()
        except sqlite3.DatabaseError as problem:
            if isinstance(problem, sqlite3.OperationalError):  # locked, or not writable: not the file's fault
                raise
        # All of it can be rebuilt from the project.
        for ending in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}{ending}")
        return self._connected()

    def _connected(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        database = sqlite3.connect(self._path, timeout=20.0, isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")  # a crash of the machine costs the last scan, nothing else
            database.execute("PRAGMA journal_size_limit = 16777216")
            database.execute("PRAGMA cache_size = -4096")
            database.execute("BEGIN IMMEDIATE")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version != _FORMAT:
                for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    database.execute(f'DROP TABLE "{name}"')
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {_FORMAT}")
            database.execute("COMMIT")
        except BaseException:
            database.close()
            raise
        return database

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    # --- versions ---

    def newest(self) -> tuple[Version, FileTable] | None:
        """Return the newest version of this working tree, with its file table."""
        version = self.version(0)
        if version is None or (table := self._table(version)) is None:
            return None
        row = self._database.execute("SELECT packed FROM statuses WHERE root = ?", (self._root,)).fetchone()
        if row is not None:
            _read_statuses(table, row[0])
        return version, table

    def version(self, number: int) -> Version | None:
        """Return a version of this working tree; 0 is the newest."""
        row = self._database.execute(
            "SELECT version, tree, created FROM versions WHERE root = ? AND (version = ? OR ? = 0)"
            " ORDER BY version DESC LIMIT 1",
            (self._root, number, number),
        ).fetchone()
        return None if row is None else Version(*row)

    def table(self, number: int) -> FileTable | None:
        """Return the paths, modes, notes and contents of a kept version."""
        version = self.version(number)
        return None if version is None else self._table(version)

    def _table(self, version: Version) -> FileTable | None:
        row = self._database.execute(
            "SELECT packed, blobs, modes FROM versions JOIN path_lists ON id = paths WHERE root = ? AND version = ?",
            (self._root, version.number),
        ).fetchone()
        packed, blobs, modes = row
        paths = zlib.decompress(packed)
        table = FileTable(paths.split(b"\0") if paths else [])
        table.blobs = bytearray(blobs)
        plain = zlib.decompress(modes)
        table.modes, table.notes = array("I", plain[: -len(table)] if len(table) else b""), bytearray(len(table))
        table.notes[:] = plain[len(plain) - len(table) :]
        return table

    def add_version(self, table: FileTable, tree: str) -> Version:
        """Store a new version, and forget the oldest ones."""
        packed = zlib.compress(b"\0".join(table.paths), 1)
        digest = hashlib.sha1(packed, usedforsecurity=False).digest()
        modes = zlib.compress(table.modes.tobytes() + bytes(table.notes), 1)
        now = time.time()
        with self._writing() as database:
            last = self.version(0)
            number = 1 if last is None else last.number + 1
            database.execute("INSERT OR IGNORE INTO path_lists (digest, packed) VALUES (?, ?)", (digest, packed))
            (paths,) = database.execute("SELECT id FROM path_lists WHERE digest = ?", (digest,)).fetchone()
            row = (self._root, number, tree, now, paths, bytes(table.blobs), modes)
            database.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            database.execute("REPLACE INTO statuses VALUES (?, ?)", (self._root, _statuses(table)))
            oldest = number - KEPT_VERSIONS
            database.execute("DELETE FROM versions WHERE root = ? AND version <= ?", (self._root, oldest))
        return Version(number, tree, now)

    def keep_statuses(self, table: FileTable) -> None:
        """Store what `lstat` says about the newest version's files, whose contents are the same."""
        with self._writing() as database:
            database.execute("REPLACE INTO statuses VALUES (?, ?)", (self._root, _statuses(table)))

    # --- extracts ---

    def has_extract(self, blob: bytes, key: str) -> bool:
        """Return whether the extract of a content exists or is not needed."""
        found = self._database.execute("SELECT 1 FROM extracts WHERE blob = ? AND key = ?", (blob, key))
        return found.fetchone() is not None

    def notes(self) -> dict[bytes, str]:
        """Return why not everything is known about a content, for each of which that is so."""
        return dict(self._database.execute("SELECT blob, note FROM extracts WHERE note != ''").fetchall())

    def add_extracts(self, parsed: Sequence[ParsedFile]) -> None:
        """Store the results of helpers."""
        now = int(time.time())
        rows = [(one.blob, one.key, one.note, one.extract, now) for one in parsed]
        with self._writing() as database:
            database.executemany("INSERT OR IGNORE INTO extracts VALUES (?, ?, ?, ?, ?)", rows)

    def packed(self, blob: bytes, key: str) -> bytes | None:
        """Return the packed extract of a content; None if there is none."""
        query = "SELECT extract FROM extracts WHERE blob = ? AND key = ?"
        row: tuple[bytes] | None = self._database.execute(query, (blob, key)).fetchone()
        return None if row is None else row[0]

    def sweep(self) -> int:
        """Delete what no kept version has. Return how many extracts that were."""
        with self._writing() as database:
            roots = [root for (root,) in database.execute("SELECT DISTINCT root FROM versions")]
            for root in roots:
                if root != self._root and not os.path.isdir(root):  # a working tree that was removed
                    database.execute("DELETE FROM versions WHERE root = ?", (root,))
                    database.execute("DELETE FROM statuses WHERE root = ?", (root,))
            database.execute("DELETE FROM path_lists WHERE id NOT IN (SELECT paths FROM versions)")
            referenced: set[bytes] = set()
            for (blobs,) in database.execute("SELECT blobs FROM versions"):
                referenced.update(blobs[at : at + HASH] for at in range(0, len(blobs), HASH))
            before = int(time.time()) - _LAST_SEEN_SECONDS
            rows = database.execute("SELECT rowid, blob FROM extracts WHERE added < ?", (before,))
            unused = [(row,) for row, blob in rows if blob not in referenced]
            database.executemany("DELETE FROM extracts WHERE rowid = ?", unused)
        return len(unused)


def _statuses(table: FileTable) -> bytes:
    return zlib.compress(b"".join(getattr(table, name).tobytes() for name in _ARRAYS) + bytes(table.flags), 1)


def _read_statuses(table: FileTable, packed: bytes) -> None:
    plain, at = zlib.decompress(packed), 0
    if len(plain) != len(table) * _STATUS_BYTES:
        return  # of another list of paths: then every file is read again
    for name in _ARRAYS:
        values = getattr(table, name)
        size = len(values) * values.itemsize
        values[:] = array(values.typecode, plain[at : at + size])
        at += size
    table.flags[:] = plain[at:]
