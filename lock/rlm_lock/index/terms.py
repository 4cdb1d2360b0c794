"""The terms under which a file is found: its words, the names it defines, its path and the names it is imported by."""

from __future__ import annotations

import functools
import math
import posixpath
from array import array
from collections.abc import Iterable
from zlib import crc32

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.extraction.words import hash_of, parts_of, unpack
from rlm_lock.index.modules import import_parts, module_terms
from rlm_lock.index.postings import Field
from rlm_lock.model import Extract

STEM, FOLDER = 1, 0
"""Bytes of a posting in the path: for the file's own name, and for its folders."""
_MOST_PARTS = 400


@dataclass(frozen=True, slots=True)
class FileTerms:
    """The terms of a file, by field: hashes in ascending order, and a byte for each.

    Attributes:
        fields: the terms.
        size: 8·log2 of the number of distinct words.
    """

    fields: tuple[tuple[Field, array[int], bytes], ...]
    size: int


def terms_of(path: bytes, extract: Extract) -> FileTerms:
    """Return the terms of a file."""
    text = path.decode("utf-8", "surrogateescape")
    names = dict.fromkeys(d.name for d in extract.definitions)
    defined = {hash_of(name) for name in names} | module_terms(text)
    folder, base = posixpath.split(text)
    in_path = dict.fromkeys(_folder_terms(folder), FOLDER) | dict.fromkeys(_path_terms(base), STEM)
    parts = {crc32(part.encode()) for name in [*names][:_MOST_PARTS] for part in parts_of(name)} - defined
    words, infos = unpack(extract.words)
    # A new file may be the target of an import that had none: these terms find its importers.
    imported = {hash_of(part) for name in extract.imports for part in import_parts(name)}
    missing = sorted(imported.difference(words, defined))
    ordered = sorted(in_path.items())
    fields = (
        (Field.DEFINED, *_plain(defined)),
        (Field.PATH, array("I", (key for key, _ in ordered)), bytes(info for _, info in ordered)),
        (Field.PART, *_plain(parts)),
        (Field.TEXT, words, infos),
        (Field.TEXT, array("I", missing), bytes(len(missing))),
    )
    return FileTerms(fields, min(255, int(8 * math.log2(len(words) + 1))))


def _plain(hashes: Iterable[int]) -> tuple[array[int], bytes]:
    ordered = array("I", sorted(hashes))
    return ordered, bytes(len(ordered))


@functools.lru_cache(maxsize=64)
def _folder_terms(text: str) -> frozenset[int]:
    """Return the terms of a folder (cached: files come in the order of their paths, so its neighbours ask next)."""
    return frozenset(_path_terms(text))


def _path_terms(text: str) -> set[int]:
    """Return the parts of a path, and each of its multi-part names as a whole."""
    whole = (piece for name in text.split("/") for piece in (name, posixpath.splitext(name)[0]) if piece)
    return {crc32(part.encode()) for part in parts_of(text)} | {hash_of(name) for name in whole}
