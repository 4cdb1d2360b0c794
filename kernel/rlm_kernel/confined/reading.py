"""Ask a confined process what is in a file that may be hostile: a table, or a document."""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rlm_kernel.confined.accounts import Account, account_of, accounts_file
from rlm_kernel.confined.process import Job, Limits, messages
from rlm_kernel.confined.schemes import OVER_HTTP, SCHEMES, OverHttp, Scheme, scheme_of
from rlm_kernel.contexts.errors import HelperDied, MissingExtra, SourceError, TextTooLarge

__all__ = ["Packed", "Part", "Preview", "fetch", "packed", "parts", "preview"]

_MEMORY = 512 << 20
_PREVIEW = Limits(seconds=40.0, memory=_MEMORY, answer=16 << 20)
_DOCUMENT_SECONDS = 120.0
_ARCHIVE_SECONDS = 600.0
_FETCH_SECONDS = 600.0
_ESCAPED = 6
"""Bytes that a byte of text may take in a message."""
_NAMES = 64 << 20
"""Bytes that the names of an archive's files may take."""
_COLUMNS, _LONGEST = 100, 200
_NONSENSE = "gave an answer that makes no sense"


@dataclass(frozen=True, slots=True)
class Preview:
    """Rows and columns with their types, and the first rows as text."""

    shape: dict[str, Any]
    text: str


@dataclass(frozen=True, slots=True)
class Part:
    """A page or section: what it is called, and its text; None when it cannot be read."""

    name: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Packed:
    """A piece of a file in an archive: its bytes, None when they cannot be read, and whether more follow."""

    name: str
    data: bytes | None
    more: bool


def preview(path: Path, rows: int = 100, fd: int | None = None) -> Preview:
    """What a Parquet file holds.

    Args: the path, how many rows to show, and the open file where the path goes through its number.
    Raises: SourceError when it is damaged, MissingExtra, HelperTimeout, HelperDied.
    """
    try:
        said = next(messages(Job("preview", {"show": rows}, [path], fd), _PREVIEW), {})
    except MissingExtra as missing:
        raise MissingExtra(f"{missing}; Parquet files need it: pip install 'rlm-kernel[query]'") from missing
    match said:
        case {"rows": int(rows), "columns": dict(columns), "text": str(text)}:
            named = {str(name)[:_LONGEST]: str(kind)[:_LONGEST] for name, kind in islice(columns.items(), _COLUMNS)}
            return Preview({"rows": rows, "columns": named}, text)
    raise HelperDied(_NONSENSE)


def parts(fd: int, kind: str, most: int) -> Generator[Part, None, None]:
    """The pages or sections of an open document, in order.

    Args: kind, pdf or docx; most, the bytes of text beyond which nobody wants it.
    Raises: SourceError when it is damaged, encrypted or without text, MissingExtra, HelperTimeout, HelperDied.
    """
    limits = Limits(_DOCUMENT_SECONDS, _MEMORY, _ESCAPED * most + _PREVIEW.answer)
    try:
        for said in messages(Job("documents", {"kind": kind}, fd=fd), limits):
            name, text = said.get("part"), said.get("text")
            if not isinstance(name, str) or not isinstance(text, str | None):
                raise HelperDied(_NONSENSE)
            yield Part(name, text)
    except MissingExtra as missing:
        raise MissingExtra(f"{missing}; {kind} files need it: pip install 'rlm-kernel[documents]'") from missing


def packed(fd: int, most: int, unpacked: int, members: int) -> Generator[Packed, None, None]:
    """The files in an open zip archive, in its order, each in pieces.

    Args: most, the bytes of text beyond which nobody wants it; unpacked, the bytes of documents and tables in it;
        members, how many files there may be.
    Raises: SourceError when it is damaged or holds more files, TextTooLarge, HelperTimeout, HelperDied.
    """
    limits = Limits(_ARCHIVE_SECONDS, _MEMORY, _ESCAPED * (most + unpacked) + _NAMES)
    for said in messages(Job("archive", {"unpacked": unpacked, "members": members}, fd=fd), limits):
        pieces = said.get("pieces")
        if not isinstance(pieces, list):
            raise HelperDied(_NONSENSE)
        yield from map(_packed, pieces)


def _packed(piece: object) -> Packed:
    if isinstance(piece, list) and len(piece) == 4:
        name, text, is_encoded, more = piece
        if isinstance(name, str) and isinstance(text, str | None) and isinstance(more, bool):
            try:
                data = text and (b64decode(text, validate=True) if is_encoded else text.encode())
            except ValueError as problem:
                raise HelperDied(_NONSENSE) from problem
            return Packed(name, b"" if data == "" else data, more)
    raise HelperDied(_NONSENSE)


def fetch(url: str, permitted: Sequence[str], fd: int, most: int) -> None:
    """Copy what is at a URL into an open file.

    Args: permitted, the policy's prefixes; most, the bytes to accept.
    Raises: SourceError when it cannot be read, or leads where it may not; TextTooLarge, MissingExtra, HelperTimeout,
        HelperDied.
    """
    account = account_of(url)
    job = _reader(url, account, {"url": url, "permitted": list(permitted), "most": most}, fd)
    try:
        said = next(messages(job, Limits(_FETCH_SECONDS, _MEMORY, 1 << 20)), {})
    except MissingExtra as missing:
        scheme = SCHEMES.get(scheme_of(url))
        packages = "'rlm-kernel[urls]'" + (f" {scheme.package}" if scheme and scheme.package != "fsspec" else "")
        raise MissingExtra(f"{missing}; {scheme_of(url)} URLs need it: pip install {packages}") from missing
    except SourceError as problem:
        hidden = account.hidden if account else str
        raise SourceError(hidden(problem.what), hidden(problem.advice)) from None
    if not isinstance(said.get("size"), int):
        raise HelperDied(_NONSENSE)
    if os.fstat(fd).st_size > most:
        raise TextTooLarge(most)


def _reader(url: str, account: Account | None, request: dict[str, Any], fd: int) -> Job:
    scheme = scheme_of(url)
    how = OVER_HTTP.get(scheme) or SCHEMES[scheme]
    if isinstance(how, Scheme) and how.signs_in and account is None:
        raise SourceError(f"{url} is read with an account only", f"name one for it in {accounts_file()}")
    if isinstance(how, OverHttp) and (needed := how.one_of(url)) and not any(map(os.environ.get, needed)):
        named = " or ".join(needed)
        raise SourceError(
            f"{url} does not say on which server it is", f"start the daemon with {named} in its environment"
        )
    return Job(
        "fetch" if scheme in OVER_HTTP else "remote",
        {**request, "account": None if account is None else asdict(account)},
        fd=fd,
        network=True,
        file_bytes=request["most"] + 1,
        variables=how.variables,
    )
