"""Store what files hold: one file, also compressed, or several files, directories and archives as one text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlm_kernel.confined.reading import Part, Preview, fetch, parts, preview

from .bundle import Bundle, Entry
from .compressed import compression_of, unpacked
from .errors import SourceError
from .files import draft
from .folder import files_below
from .members import MOST_TEXT, PARQUET, START, Members, document_kind
from .model import StoredText
from .progress import follow
from .store import ContextStore, opened


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was stored.

    Attributes:
        text: it.
        table: for several files, the table of them as JSON lines (see bundle.FileRow); else empty.
        files: how many there are.
        skipped: how many were left out, by reason.
        compression: of a single file: its kind, or None.
        shape: of a table in a binary format: its rows and columns.
    """

    text: StoredText
    table: str = ""
    files: int = 1
    skipped: dict[str, int] = field(default_factory=dict)
    compression: str | None = None
    shape: dict[str, Any] | None = None


def put_file(store: ContextStore, path: Path, limit: int | None = None) -> Loaded:
    """Store a file, unpacked if it is compressed; a zip archive as the files in it, a table as what it is.

    Args: limit, the most bytes to accept, unpacked.
    Raises: SourceError, TextTooLarge, StoreError, and what a confined process may raise.
    """
    with opened(path) as fd:
        start = os.pread(fd, START, 0)
        if start.startswith(PARQUET):
            return _put_parquet(store, path, limit)
        kind = compression_of(start)
        if document := document_kind(fd, start):
            with closing(parts(fd, document, MOST_TEXT if limit is None else limit)) as found:
                return _put_bundle(store, map(_part_entry, found), Counter(), limit)
        if kind is not None:
            with os.fdopen(os.dup(fd), "rb") as file:
                if kind == "zip":
                    return _put_bundle(store, Members(limit, store.root).archive(file), Counter(), limit)
                return Loaded(store.put_chunks(unpacked(file, kind), limit=limit), compression=kind)
    return Loaded(store.put_path(path, limit=limit))


def put_url(store: ContextStore, url: str, permitted: Sequence[str], limit: int) -> Loaded:
    """Store what is at a URL, as `put_file` does a file.

    Args: permitted, prefixes of URLs that may be read; limit, the most bytes to accept, before and after unpacking.
    Raises: as `put_file`.
    """
    with draft(store.root) as (fd, name):
        follow(name)
        fetch(url, permitted, fd, limit)
        return put_file(store, Path(name), limit)


def _put_parquet(store: ContextStore, path: Path, limit: int | None) -> Loaded:
    found: list[Preview] = []

    def told(copy: Path) -> str:
        found.append(preview(copy))
        return found[0].text

    text = store.put_data(path, told, limit=limit)
    return Loaded(text, shape=found[0].shape)


def _part_entry(part: Part) -> Entry:
    def pieces() -> Iterator[bytes]:
        if part.text is None:
            raise SourceError(f"{part.name} cannot be read", "give the path of another form of it")
        yield part.text.encode("utf-8", "replace")

    return Entry(part.name, pieces)


def put_files(
    store: ContextStore,
    paths: Sequence[Path],
    private: Callable[[Path], bool],
    limit: int | None = None,
    skipped: Counter[str] | None = None,
) -> Loaded:
    """Store several files, and all files of directories, as one text.

    Args:
        store: where to.
        paths: resolved; what is shown of them is relative to the directory they have in common.
        private: whether a directory below is not to be looked into.
        limit: the most bytes to accept.
        skipped: what the caller has left out already.

    Raises: SourceError, also when nothing is left to take; TextTooLarge, StoreError.
    """
    left_out = Counter(skipped or ())
    one = len(paths) == 1 and paths[0].is_dir()
    top = paths[0] if one else Path(os.path.commonpath([path.parent for path in paths]))
    return _put_bundle(store, _entries(paths, top, left_out, private, Members(limit, store.root)), left_out, limit)


def _put_bundle(store: ContextStore, entries: Iterator[Entry], skipped: Counter[str], limit: int | None) -> Loaded:
    bundle = Bundle(entries, skipped)
    text = store.put_chunks(bundle, limit=limit)
    if not bundle.rows:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items())) or "there are none"
        advice = "name text files, or a pattern for them, to load them in any case"
        raise SourceError(f"no file is left to load ({why})", advice)
    return Loaded(text, bundle.table(), len(bundle.rows), dict(sorted(skipped.items())))


def _entries(
    paths: Sequence[Path], top: Path, skipped: Counter[str], private: Callable[[Path], bool], members: Members
) -> Iterator[Entry]:
    for path in paths:
        if path.is_dir():
            for found in files_below(path, skipped, private):
                yield members.entry(found, top, path)
        else:
            yield members.entry(path, top)
