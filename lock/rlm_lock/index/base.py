"""The index of a whole project as one file: written in one go, then mapped and read in place."""

from __future__ import annotations

import json
import mmap
import os
import sys
from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from rlm_lock.extraction.packing import from_bytes
from rlm_lock.index.modules import Modules
from rlm_lock.index.postings import SEGMENT_BITS, SEGMENT_FILES, Postings, PostingsWriter
from rlm_lock.index.terms import terms_of
from rlm_lock.model import Extract

IndexedFile = tuple[bytes, str, bytes | None]
"""A path, the key of its extract, and the packed extract, or None if nothing is known of its text."""
STAMP = 8
"""Bytes that say which content of a file is indexed."""
_FORMAT = 2
_MOST_POPULAR = 1_000
"""Files that most others import, for a map without a question."""
_MAGIC = b"rlmindex"
INDEX_FILE = "index"


def stamp_of(key: str) -> bytes:
    """Return the mark of a content, derived from the key of its extract."""
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=STAMP).digest()


class _Writer:
    """Writes named sections one after another, and their positions at the end."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self._sections: dict[str, tuple[int, int]] = {}
        self._segments: list[tuple[int, int, int]] = []

    def segment(self, postings: PostingsWriter) -> None:
        start = self.file.tell()
        self._segments.append((start, *postings.write(self.file)))

    def section(self, name: str, data: bytes) -> None:
        self._sections[name] = (self.file.tell(), len(data))
        self.file.write(data)
        self.file.write(bytes(-len(data) % 8))

    def end(self) -> None:
        """Write the table of contents; what was written so far can then be read, and more can be added."""
        table = json.dumps({"format": _FORMAT, "sections": self._sections, "segments": self._segments}).encode()
        self.file.write(table + len(table).to_bytes(8, "little") + _MAGIC)
        self.file.write(bytes(-self.file.tell() % 8))
        self.file.flush()


def build(folder: Path, files: Iterable[IndexedFile]) -> None:
    """Write the index of a project, replacing the previous one.

    Args:
        folder: where it is kept.
        files: every file, in ascending order of the paths' bytes. They are read once and not kept.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = folder / f"{INDEX_FILE}.{os.getpid()}"
    try:
        with draft.open("wb") as file, TemporaryFile(dir=folder) as imports:
            writer = _Writer(file)
            _write_files(writer, files, imports)
            writer.end()
            _write_imports(writer, Base(draft), imports)
            writer.end()
        draft.replace(folder / INDEX_FILE)
    finally:
        draft.unlink(missing_ok=True)


def _write_files(writer: _Writer, files: Iterable[IndexedFile], imports: BinaryIO) -> None:
    paths: list[bytes] = []
    stamps, sizes = bytearray(), bytearray()
    postings = PostingsWriter()
    for path, key, packed in files:
        if paths and path <= paths[-1]:
            raise ValueError("the files of an index come in ascending order of their paths")
        number = len(paths)
        if number and number % SEGMENT_FILES == 0:
            writer.segment(postings)
            postings = PostingsWriter()
        extract = from_bytes(packed) if packed is not None else Extract()
        terms = terms_of(path, extract)
        for field, hashes, infos in terms.fields:
            postings.add(number % SEGMENT_FILES, field, hashes, infos)
        imports.write("\n".join(extract.imports).encode("utf-8", "surrogateescape") + b"\0")
        paths.append(path)
        stamps += stamp_of(key)
        sizes.append(terms.size)
    writer.segment(postings)
    writer.section("paths", b"\0".join(paths))
    writer.section("offsets", array("I", accumulate((len(path) + 1 for path in paths), initial=0)).tobytes())
    writer.section("stamps", bytes(stamps))
    writer.section("sizes", bytes(sizes))


def _write_imports(writer: _Writer, base: Base, imports: BinaryIO) -> None:
    """Resolve the imports of every file, and write them in both directions."""
    modules = Modules(base.named, base.text_of)
    starts, targets = array("I", [0]), array("I")
    imports.seek(0)
    for number, names in enumerate(_records(imports)):
        importer = base.text_of(number)
        imported = {target for name in names for target in modules.resolve(importer, name)} - {number}
        targets.extend(sorted(imported))
        starts.append(len(targets))
    counts = array("I", bytes(4 * (len(base) + 1)))
    for target in targets:
        counts[target + 1] += 1
    into = array("I", accumulate(counts))
    places = array("I", into)
    sources = array("I", bytes(4 * len(targets)))
    for number in range(len(base)):
        for target in targets[starts[number] : starts[number + 1]]:
            sources[places[target]] = number
            places[target] += 1
    popular = sorted(range(len(base)), key=lambda n: (into[n] - into[n + 1], n))[:_MOST_POPULAR]
    for name, values in (
        ("starts", starts),
        ("targets", targets),
        ("into", into),
        ("sources", sources),
        ("popular", array("I", popular)),
    ):
        writer.section(name, values.tobytes())


def _records(file: BinaryIO) -> Iterator[list[str]]:
    """Yield the names of each file's imports."""
    rest = b""
    while chunk := file.read(1 << 20):
        *records, rest = (rest + chunk).split(b"\0")
        for record in records:
            yield record.decode("utf-8", "surrogateescape").split("\n") if record else []


def _contents_of(data: memoryview) -> tuple[dict[str, tuple[int, int]], list[tuple[int, int, int]]]:
    """Return the positions of the sections, and those of the segments with their sizes."""
    end = bytes(data[-64:]).rfind(_MAGIC)
    if end < 0:
        raise ValueError("the index has no end: it was not written whole")
    end += max(0, len(data) - 64)
    size = int.from_bytes(data[end - 8 : end], "little")
    table = json.loads(bytes(data[end - 8 - size : end - 8]))
    if table["format"] != _FORMAT:
        raise ValueError("the index was written by another version")
    return {k: (a, b) for k, (a, b) in table["sections"].items()}, [(a, b, c) for a, b, c in table["segments"]]


class Base:
    """A mapped index. Files are numbered in the order of their paths."""

    def __init__(self, path: Path) -> None:
        """Map an index; ValueError or OSError if there is no readable one."""
        with path.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        try:
            self._sections, segments = _contents_of(data)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is no index: {error}") from None
        self._data = data
        self.segments = [
            Postings(data[start:], terms, postings, at << SEGMENT_BITS)
            for at, (start, terms, postings) in enumerate(segments)
        ]
        self._paths = self._section("paths")
        self._offsets = self._section("offsets").cast("I")
        self._stamps = self._section("stamps")
        self.sizes = self._section("sizes")
        self.starts, self.targets, self.into, self.sources, self.popular = (
            self._section(name).cast("I") for name in ("starts", "targets", "into", "sources", "popular")
        )

    def _section(self, name: str) -> memoryview:
        start, size = self._sections.get(name, (0, 0))
        return self._data[start : start + size]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def path_of(self, number: int) -> bytes:
        """Return a file's path."""
        return bytes(self._paths[self._offsets[number] : self._offsets[number + 1] - 1])

    def text_of(self, number: int) -> str:
        """Return a file's path as text that can be converted back."""
        return self.path_of(number).decode("utf-8", "surrogateescape")

    def place_of(self, path: bytes) -> int:
        """Return the number of the first file whose path is not before this one."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.path_of(middle) < path:
                low = middle + 1
            else:
                high = middle
        return low

    def number_of(self, path: bytes) -> int | None:
        """Return a file's number."""
        place = self.place_of(path)
        return place if place < len(self) and self.path_of(place) == path else None

    def stamp(self, number: int) -> bytes:
        """Return the mark of the content that is indexed."""
        return bytes(self._stamps[number * STAMP : (number + 1) * STAMP])

    def named(self, term: int, most: int = sys.maxsize) -> list[int]:
        """Return the files that define a name, or may be imported by it; none if there are more than ``most``."""
        found: list[int] = []
        for segment in self.segments:
            places = segment.defined(term)
            if len(found) + len(places) > most:
                return []
            if places:
                found += segment.files(places.start, places.stop)
        return found
