"""The job `documents`: the text of a PDF or Word file, page by page or section by section."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

from rlm_contexts.helpers.protocol import DocumentKind, DocumentPart, FaultKind, JobFault, JobSpec, ReadDocument

Say = Callable[[DocumentPart], None]

_HEADING = ("Title", "Heading 1")
_LONGEST_HEADING = 80
_DAMAGED = "the {} file is damaged, or holds something that cannot be read ({})"


def prepare(request: ReadDocument) -> None:
    """Import the library for the kind of file, while files can still be opened freely."""
    if request.kind is DocumentKind.PDF:
        import pypdf  # noqa: F401
    else:
        import docx  # noqa: F401


def run(spec: JobSpec, request: ReadDocument, say: Say) -> None:
    """Write each part with its name and text; an unreadable page has no text. ``spec`` has the open file."""
    kind, empty = request.kind, True
    with os.fdopen(spec.open_file, "rb") as file:
        file.seek(0)
        try:
            for name, text in (_pages if kind is DocumentKind.PDF else _sections)(file):
                empty = empty and not (text or "").strip()
                say(DocumentPart(name, text))
        except MemoryError:
            raise
        except _Encrypted as refused:
            raise JobFault(FaultKind.SOURCE, str(refused), "save it without a password first") from refused
        except Exception as problem:  # a parser that meets a hostile file may raise anything
            what = _DAMAGED.format(kind, f"{type(problem).__name__}: {problem}"[:300])
            raise JobFault(FaultKind.SOURCE, what, "give the path of another version of the document") from problem
    if empty:
        what = f"the {kind} file holds no text, perhaps only pictures"
        raise JobFault(FaultKind.SOURCE, what, "recognise their text with an OCR program")


class _Encrypted(Exception):
    """A sound file that cannot be opened without its password."""


def _pages(file: BinaryIO) -> Iterator[tuple[str, str | None]]:
    from pypdf import PdfReader

    reader = PdfReader(file, strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise _Encrypted("the pdf file is encrypted")
    for number, page in enumerate(reader.pages, 1):
        text: str | None
        try:
            text = _clean(page.extract_text())
        except MemoryError:
            raise
        except Exception:  # one bad page does not cost the others
            text = None
        yield f"page {number}", text


def _sections(file: BinaryIO) -> Iterator[tuple[str, str | None]]:
    """Yield the sections: each heading of the first level starts a new one."""
    from docx import Document
    from docx.table import Table

    number, title, lines = 1, "", list[str]()
    for block in Document(file).iter_inner_content():
        if isinstance(block, Table):
            lines += [" | ".join(cell.text.replace("\n", " ") for cell in row.cells) for row in block.rows]
            continue
        if block.style is not None and block.style.name in _HEADING and block.text.strip():
            if lines:
                yield _named(number, title), _clean("\n".join(lines))
                number += 1
            title, lines = block.text.strip(), []
        lines.append(block.text)
    yield _named(number, title), _clean("\n".join(lines))


def _named(number: int, title: str) -> str:
    return f"section {number}: {title[:_LONGEST_HEADING]}" if title else f"section {number}"


def _clean(text: str) -> str:
    return text.replace("\0", "")
