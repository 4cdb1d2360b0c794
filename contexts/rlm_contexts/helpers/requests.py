"""Ask a helper process about the contents of a file that may be hostile: a table, or a document."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from rlm_contexts.errors import HelperDied, MissingExtra, SourceError, TextTooLarge
from rlm_contexts.helpers.accounts import account_of, accounts_file, without_secrets
from rlm_contexts.helpers.job import Job, JobLimits, messages, one_message
from rlm_contexts.helpers.protocol import (
    DocumentKind,
    DocumentPart,
    FetchUrl,
    PreviewTable,
    ReadDocument,
    ReadRemote,
    TablePreview,
    UnpackArchive,
    UnpackedPiece,
)
from rlm_contexts.helpers.schemes import rule_of, scheme_of
from rlm_ipc.extras import extra_command
from rlm_ipc.late_dataclasses import dataclass
from rlm_sandbox.policy.urls import WEB

_MEMORY = 512 << 20
_PREVIEW = JobLimits(seconds=40.0, memory=_MEMORY, answer=16 << 20)
_DOCUMENT_SECONDS = 120.0
_ARCHIVE_SECONDS = 600.0
_FETCH_SECONDS = 600.0
_ESCAPED = 6
"""Maximum bytes that one byte of text takes in a message."""
_NAMES = 64 << 20
"""Maximum bytes for the names of an archive's files."""
_COLUMNS, _LONGEST = 100, 200
_NONSENSE = "gave a malformed answer"


@dataclass(frozen=True, slots=True)
class Packed:
    """A piece of a file in an archive: its bytes, None when they cannot be read, and whether more follow."""

    name: str
    data: bytes | None
    more: bool


def preview(path: Path, rows: int = 100, fd: int | None = None) -> TablePreview:
    """Return the contents of a Parquet file.

    Args: the path, how many rows to show, and the open file if the path goes through its number. Raises: SourceError
    when it is damaged, MissingExtra, HelperTimeout, HelperDied.
    """
    try:
        said = one_message(Job(PreviewTable(rows), [path], fd), _PREVIEW)
    except MissingExtra as missing:
        raise MissingExtra(f"{missing}; Parquet files need it: {extra_command('query')}") from missing
    named = {name[:_LONGEST]: kind[:_LONGEST] for name, kind in islice(said.columns.items(), _COLUMNS)}
    return replace(said, columns=named)


def parts(fd: int, kind: str, most: int) -> Generator[DocumentPart, None, None]:
    """The pages or sections of an open document, in order.

    Args: kind, pdf or docx; most, the bytes of text beyond which nobody wants it.
    Raises: SourceError when it is damaged, encrypted or without text, MissingExtra, HelperTimeout, HelperDied.
    """
    limits = JobLimits(_DOCUMENT_SECONDS, _MEMORY, _ESCAPED * most + _PREVIEW.answer)
    try:
        yield from messages(Job(ReadDocument(DocumentKind(kind)), fd=fd), limits)
    except MissingExtra as missing:
        raise MissingExtra(f"{missing}; {kind} files need it: {extra_command('documents')}") from missing


def packed(fd: int, most: int, unpacked: int, members: int) -> Generator[Packed, None, None]:
    """Yield the files in an open zip archive, in order, each in pieces.

    Args: most, the bytes of text beyond which nobody wants it; unpacked, the bytes of documents and tables in it;
        members, how many files there may be.
    Raises: SourceError when it is damaged or holds more files, TextTooLarge, HelperTimeout, HelperDied.
    """
    limits = JobLimits(_ARCHIVE_SECONDS, _MEMORY, _ESCAPED * (most + unpacked) + _NAMES)
    for said in messages(Job(UnpackArchive(members, unpacked), fd=fd), limits):
        yield from map(_packed, said.pieces)


def _packed(piece: UnpackedPiece) -> Packed:
    try:
        data = piece.text and (b64decode(piece.text, validate=True) if piece.encoded else piece.text.encode())
    except ValueError as problem:
        raise HelperDied(_NONSENSE) from problem
    return Packed(piece.name, b"" if data == "" else data, piece.more)


def fetch(url: str, permitted: Sequence[str], fd: int, most: int) -> None:
    """Copy the contents of a URL into an open file.

    Args: permitted, the policy's prefixes; most, the bytes to accept.
    Raises: SourceError when it cannot be read, or leads where it may not; TextTooLarge, MissingExtra, HelperTimeout,
        HelperDied.
    """
    scheme, account = scheme_of(url), account_of(url)
    if account is None and rule_of(url).signs_in:
        raise SourceError(f"{url} can be read only with an account", f"add one for it to {accounts_file()}")
    kind = FetchUrl if scheme in WEB else ReadRemote
    job = Job(kind(url, tuple(permitted), most, account), fd=fd, network=True, file_bytes=most + 1)
    try:
        one_message(job, JobLimits(_FETCH_SECONDS, _MEMORY, 1 << 20))
    except MissingExtra as missing:
        needed = f"{extra_command('urls')}, and the package of fsspec for this scheme"
        raise MissingExtra(f"{scheme} URLs cannot be read yet ({missing}): {needed}") from missing
    except SourceError as problem:
        if account is None:
            raise
        texts = (without_secrets(text, account) for text in (problem.what, problem.hint))
        raise SourceError(*texts) from None
    if os.fstat(fd).st_size > most:
        raise TextTooLarge(most)
