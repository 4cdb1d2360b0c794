"""Open a file that anyone may have put there, and turn open files of the store into a Text: mapped, or copied."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlm_contexts.errors import SourceError
from rlm_contexts.store.files import INDEX_HEADER
from rlm_contexts.text.line_index import LineIndex
from rlm_contexts.text.mapping import Mapping
from rlm_contexts.text.model import StoredText
from rlm_contexts.text.text import Text

SHARED_FROM = 1 << 16
"""Texts below this many bytes are copied: that costs less than a map."""


def open_text(facts: StoredText, text_fd: int, index_fd: int, wide_fd: int | None) -> Text:
    """Return a Text over open files, which may be closed afterwards: a map keeps its file open, and the lock on it.

    Raises: ValueError or OSError when the files are shorter than the facts say.
    """
    if facts.size < SHARED_FROM:
        view = memoryview(_read_exactly(text_fd, facts.size))
        return Text(facts, LineIndex.build(view))
    data = Mapping(text_fd, facts.size)
    ranks = Mapping(index_fd, os.fstat(index_fd).st_size).view()[INDEX_HEADER:].cast("Q")
    wide = None if wide_fd is None else Mapping(wide_fd, facts.chars * facts.unit)
    return Text(facts, LineIndex(data.view(), ranks), data=data, wide=wide)


def _read_exactly(fd: int, size: int) -> bytes:
    data = os.pread(fd, size, 0)
    if len(data) != size:
        raise ValueError(f"the file holds fewer than {size} bytes")
    return data


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Yield a regular file, opened for reading without waiting for anything."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        reason = getattr(problem, "strerror", None) or str(problem)
        raise SourceError(f"{path}: {reason}", "give the path of a readable, regular file") from problem
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            kind = "a directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "not a regular file"
            raise SourceError(f"{path} is {kind}", "give the path of a file")
        yield fd
    finally:
        os.close(fd)
