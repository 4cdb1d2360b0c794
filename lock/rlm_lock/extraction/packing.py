"""Extracts as small byte strings: a store keeps one for each content that a project ever had."""

from __future__ import annotations

import struct
import zlib
from itertools import accumulate, pairwise

from rlm_lock.extraction.words import compressible
from rlm_lock.model import Definition, Extract

_KINDS = {
    "class": "c",
    "constant": "k",
    "enum": "e",
    "function": "f",
    "interface": "i",
    "macro": "d",
    "method": "m",
    "module": "n",
    "property": "p",
    "struct": "s",
    "trait": "r",
    "type": "t",
}
_LETTERS = {letter: kind for kind, letter in _KINDS.items()}
_HEADER = struct.Struct("<II")
"""How many bytes the compressed names take, and how many of the words' bytes are also compressed."""
_RAW = -15


def to_bytes(extract: Extract) -> bytes:
    """Pack an extract."""
    definitions = extract.definitions
    lines = [0, *(d.line for d in definitions)]
    names = "\0".join(
        (
            extract.note,
            "\n".join(extract.imports),
            "\n".join(d.name for d in definitions),
            "".join(_KINDS[d.kind] for d in definitions),
            "\n".join(str(b - a) for a, b in pairwise(lines)),
        )
    )
    ends = compressible(extract.words)
    text = _squeezed(names.encode("utf-8", "surrogatepass"))
    planes = _squeezed(extract.words[:ends])
    return _HEADER.pack(len(text), len(planes)) + text + planes + extract.words[ends:]


def from_bytes(data: bytes) -> Extract:
    """Unpack an extract."""
    text, planes = _HEADER.unpack_from(data)
    start = _HEADER.size + text
    note, imports, definitions = _names_in(data)
    words = zlib.decompress(data[start : start + planes], _RAW) + data[start + planes :]
    return Extract(definitions=definitions, imports=imports, words=words, note=note)


def definitions_in(data: bytes) -> tuple[Definition, ...]:
    """Unpack only the definitions of an extract."""
    return _names_in(data)[2]


def names_in(data: bytes) -> list[tuple[str, int]]:
    """Unpack only the names of an extract's definitions, with their lines: a map shows those of many files."""
    _, _, names, _, lines = _fields_of(data)
    return list(zip(names.split("\n"), accumulate(map(int, lines.split("\n"))), strict=True)) if names else []


def _fields_of(data: bytes) -> list[str]:
    text, _ = _HEADER.unpack_from(data)
    packed = zlib.decompress(data[_HEADER.size : _HEADER.size + text], _RAW)
    return packed.decode("utf-8", "surrogatepass").split("\0")


def _names_in(data: bytes) -> tuple[str, tuple[str, ...], tuple[Definition, ...]]:
    note, imports, names, kinds, lines = _fields_of(data)
    if not names:
        return note, tuple(imports.split("\n")) if imports else (), ()
    found = zip(names.split("\n"), kinds, accumulate(map(int, lines.split("\n"))), strict=True)
    definitions = tuple(Definition(name, _LETTERS[letter], line) for name, letter, line in found)
    return note, tuple(imports.split("\n")) if imports else (), definitions


def _squeezed(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, _RAW)
    return packer.compress(data) + packer.flush()
