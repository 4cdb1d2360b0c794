"""Store the contents of files: one file, also compressed, or several files, directories and archives as one text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import field
from functools import partial
from pathlib import Path

from rlm_contexts.bundle import Bundle, Entry
from rlm_contexts.compressed import compression_of, unpacked
from rlm_contexts.errors import SourceError, TextTooLarge
from rlm_contexts.helpers.protocol import DocumentPart, TablePreview
from rlm_contexts.helpers.requests import fetch, parts, preview
from rlm_contexts.loading.folder import files_below
from rlm_contexts.loading.members import MOST_TEXT, PARQUET, START, Members, document_kind
from rlm_contexts.loading.places import PathReach, Place
from rlm_contexts.progress import follow
from rlm_contexts.store.files import draft
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject


@dataclass(frozen=True, slots=True)
class LoadedSource:
    """What was stored.

    Attributes:
        text: the stored text.
        table: for several files, the table of them as JSON lines (see bundle.FileRow); otherwise empty.
        files: how many there are.
        skipped: how many were left out, by reason.
        compression: of a single file: its kind, or None.
        shape: of a table in a binary format: its rows and columns.
        origin: the request, in a form that can be repeated; empty where only the caller knows.
    """

    text: StoredText
    table: str = ""
    files: int = 1
    skipped: dict[str, int] = field(default_factory=dict)
    compression: str | None = None
    shape: JsonObject | None = None
    origin: list[str] = field(default_factory=list)


def put_file(store: ContextStore, path: Path, limit: int | None = None) -> LoadedSource:
    """Store a file, unpacked if it is compressed; a zip archive as the files in it, a table unchanged.

    Args: limit, the maximum bytes to accept, unpacked. Raises: SourceError, TextTooLarge, StoreError, and what a helper
    process may raise.
    """
    with PathReach().opened(Path(os.path.abspath(path))) as place:
        return put_place(store, place, limit)


def put_place(store: ContextStore, place: Place, limit: int | None = None) -> LoadedSource:
    """Store a file that is open, as `put_file`."""
    with place.read() as fd:
        start = os.pread(fd, START, 0)
        if start.startswith(PARQUET):
            return _put_parquet(store, fd, place.path, limit)
        kind = compression_of(start)
        if document := document_kind(fd, start):
            with closing(parts(fd, document, MOST_TEXT if limit is None else limit)) as document_parts:
                return _put_bundle(store, map(_part_entry, document_parts), Counter(), limit)
        if kind is not None:
            if kind == "zip":
                return _put_bundle(store, Members(limit, store.root).archive(fd), Counter(), limit)
            with os.fdopen(os.dup(fd), "rb") as file:
                return LoadedSource(store.put_chunks(unpacked(file, kind), limit=limit), compression=kind)
        return LoadedSource(store.put_open(fd, place.path, limit=limit))


def put_url(store: ContextStore, url: str, permitted: Sequence[str], limit: int) -> LoadedSource:
    """Store the contents of a URL, as `put_file` does a file.

    Args: permitted, prefixes of URLs that may be read; limit, the maximum bytes to accept, before and after unpacking.
    Raises: as `put_file`.
    """
    with draft(store.root) as (fd, name):
        follow(name)
        fetch(url, permitted, fd, limit)
        return put_file(store, Path(name), limit)


def _put_parquet(store: ContextStore, fd: int, path: Path, limit: int | None) -> LoadedSource:
    found: list[TablePreview] = []

    def told(copy: Path) -> str:
        found.append(preview(copy))
        return found[0].text

    text = store.put_data(fd, path, told, limit=limit)
    return LoadedSource(text, shape={"rows": found[0].rows, "columns": found[0].columns})


def _part_entry(part: DocumentPart) -> Entry:
    def pieces() -> Iterator[bytes]:
        if part.text is None:
            raise SourceError(f"{part.name} cannot be read", "give the path of another version of the file")
        yield part.text.encode("utf-8", "replace")

    return Entry(part.name, pieces)


def put_files(
    store: ContextStore,
    paths: Sequence[Path],
    reach: PathReach | None = None,
    limit: int | None = None,
    skipped: Counter[str] | None = None,
) -> LoadedSource:
    """Store several files, and all files of directories, as one text.

    Args:
        store: where to.
        paths: absolute; they are shown relative to the directory they have in common.
        reach: what may be read.
        limit: the maximum bytes to accept.
        skipped: what the caller has already left out.

    Raises: SourceError, also when nothing is left to take; TextTooLarge, StoreError.
    """
    left_out = Counter(skipped or ())
    entries = _entries(paths, reach or PathReach(), left_out, limit, Members(limit, store.root))
    return _put_bundle(store, entries, left_out, limit)


def _put_bundle(
    store: ContextStore, entries: Iterator[Entry], skipped: Counter[str], limit: int | None
) -> LoadedSource:
    bundle = Bundle(entries, skipped)
    text = store.put_chunks(bundle, limit=limit)
    if not bundle.rows:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items())) or "there are none"
        advice = "name text files, or a pattern for them, to load them in any case"
        raise SourceError(f"no file is left to load ({why})", advice)
    return LoadedSource(text, bundle.table(), len(bundle.rows), dict(sorted(skipped.items())))


def _entries(
    paths: Sequence[Path], reach: PathReach, skipped: Counter[str], limit: int | None, members: Members
) -> Iterator[Entry]:
    """Yield the files, each opened when it is read; their locations are resolved before, for display."""
    real = list(dict.fromkeys(_looked_up(path, reach, limit) for path in paths))
    alone = len(real) == 1 and real[0][1]
    top = real[0][0] if alone else Path(os.path.commonpath([path.parent for path, _ in real]))
    for path, is_folder in real:
        if not is_folder:
            yield members.entry(str(path.relative_to(top)), partial(reach.opened, path), named=True)
            continue
        with reach.opened(path) as folder:
            for found in files_below(folder, skipped, reach):
                yield members.entry(
                    str(found.path.relative_to(top)), partial(reach.below, found.folder, found.name), named=False
                )


def _looked_up(path: Path, reach: PathReach, limit: int | None) -> tuple[Path, bool]:
    """Return where a path leads, and whether to a folder."""
    with reach.opened(path) as place:
        if not place.is_folder and limit is not None and (size := os.fstat(place.fd).st_size) > limit:
            raise TextTooLarge(limit, size)
        return place.path, place.is_folder
