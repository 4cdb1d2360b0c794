"""Compressed sources, recognised by their first bytes, read in pieces of bounded size.

A small file may unpack to any size, so the reader must count the bytes and stop (ContextStore does).
"""

from __future__ import annotations

import bz2
import importlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from rlm_contexts.errors import MissingExtra, SourceError
from rlm_ipc.extras import extra_command

PIECE = 1 << 20
"""Maximum bytes of a piece."""
_ZIPS = dict.fromkeys((b"PK\3\4", b"PK\5\6"), "zip")  # with files, and without any
_MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd", **_ZIPS}
_LZMA_MEMORY = 256 << 20  # bytes: four times what the strongest usual setting needs


def compression_of(start: bytes) -> str | None:
    """Return the kind of compression by the first bytes of a file: gzip, bzip2, xz, zstd, zip; or None."""
    return next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)


def unpacked(file: BinaryIO, kind: str) -> Iterator[bytes]:
    """Yield the contents of a compressed file in pieces; several consecutive streams are one text.

    Args: kind, from compression_of, not zip. Raises: SourceError when the file is damaged or ends early, or nothing
    here can read it.
    """
    try:
        yield from _unpacked(file, _DECOMPRESSORS[kind])
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as problem:
        raise SourceError(f"the {kind} data is damaged ({problem})", "give the path of a complete file") from problem
    except MemoryError as problem:
        raise SourceError(f"unpacking this {kind} file needs too much memory", "unpack it first") from problem


def _unpacked(file: BinaryIO, decompressor: Callable[[], Any]) -> Iterator[bytes]:
    current = decompressor()
    data = b""
    while True:
        if current.eof:
            data = current.unused_data.lstrip(b"\0") or file.read(PIECE)  # zeros: padding
            if not data:
                return
            current = decompressor()
        elif current.needs_input:
            data = file.read(PIECE)
            if not data:
                raise EOFError("it ends early")
        piece = current.decompress(data, PIECE)
        data = b""
        if piece:
            yield piece


class _Gzip:
    """zlib's object with the interface of the other decompressors."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, most: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, most)


def _zstd() -> Any:
    """Return the standard library's module from Python 3.14 on, otherwise that of an optional package."""
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(module).ZstdDecompressor()
        except ModuleNotFoundError:
            continue
    raise MissingExtra(f"zstd files need Python 3.14 or backports.zstd: {extra_command('zstd')}")


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(memlimit=_LZMA_MEMORY),
    "zstd": _zstd,
}
