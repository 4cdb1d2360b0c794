"""What a helper process is asked and what it answers: a request and a reply type for each job, in one table.

The daemon writes lines of JSON to a process: a `JobSpec`, which says what the process may use, then its requests. The
process answers each of these with lines too, each a `JobLine`: any number of replies of the job's type, then either a
`Fault` or a mark that it is done. It ends when its input ends.

The process has read files that may be hostile, so the daemon trusts none of its lines: `rlm_ipc.messages.read` refuses
every field with another name or type than declared here.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from rlm_contexts.searches import ScanResult, SearchRequest
from rlm_contexts.text.model import StoredText
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import Json

Reply = TypeVar("Reply")


class JobRequest(Generic[Reply]):
    """Base of the requests; ``Reply`` is the type of the job's replies, one or many."""

    __slots__ = ()


# --- the frame around every job -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a process is for, and what it may use.

    Attributes:
        job: the name in `JOBS`.
        scratch: the folder that it may write in.
        files: what it may read, by path.
        memory: bytes that it may allocate.
        file_bytes: the maximum size of a file that it writes.
        network: whether it may use the network.
        fd: the number of an open file that it inherits.
    """

    job: str
    scratch: str
    files: tuple[str, ...]
    memory: int
    file_bytes: int
    network: bool = False
    fd: int | None = None

    @property
    def open_file(self) -> int:
        """The number of the file that the process inherits; raises ValueError for a job without one."""
        if self.fd is None:
            raise ValueError(f"the job {self.job} needs an open file")
        return self.fd


class FaultKind(enum.StrEnum):
    """Whose fault it is that a job failed."""

    SOURCE = "source"
    """The input that it was to read."""
    QUERY = "query"
    """The statement that it was to run."""
    MISSING = "missing"
    """A library that is not installed."""
    DIED = "died"
    """Its own: no walls, or not enough memory."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a job failed, and for a source what to do."""

    kind: FaultKind
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class JobLine:
    """One line of a process: a reply, a fault, or that it is done."""

    reply: Json = None
    fault: Fault | None = None
    is_done: bool = False


class JobFault(Exception):
    """A job cannot be done; raised in the process, which reports its ``fault``."""

    def __init__(self, kind: FaultKind, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(kind, message, advice)


# --- sql ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A file that is a table: ``format`` is parquet, csv, tsv, json, jsonl, or text for its lines.

    ``delimiter`` and the lines to ``skip`` are those of CSV; ``array`` says that a JSON file is one array. ``size`` is
    in bytes.
    """

    name: str
    path: str
    format: str
    size: int = 0
    delimiter: str = ","
    skip: int = 0
    array: bool = False


@dataclass(frozen=True, slots=True)
class RunSql(JobRequest["SqlPart"]):
    """Run SQL over tables."""

    sql: str
    tables: tuple[SqlTable, ...]


@dataclass(frozen=True, slots=True)
class SqlPart:
    """A part of an answer. The first has the ``columns`` with their DuckDB ``types``, the later ones the ``rows``."""

    columns: tuple[str, ...] | None = None
    types: tuple[str, ...] = ()
    rows: tuple[Json, ...] = ()


# --- search ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchText(JobRequest["SearchAnswer"]):
    """Search the text at a path of the store."""

    path: str
    text: StoredText
    search: SearchRequest


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The result; ``is_late`` says that the time ran out, and the result is what was found until then."""

    found: ScanResult
    is_late: bool = False


# --- parse ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileParsed:
    """The contents of one file.

    Attributes:
        blob: the hash of the content that was read; empty if it could not be read.
        note: why not everything is kept of it, as the project lock names it.
        extract: the packed extract, as Base64.
        seconds: processor time that it took.
    """

    blob: str
    note: str = ""
    extract: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ParseFiles(JobRequest[FileParsed]):
    """Parse source files below a folder, in this order, until slow files have used up the given processor time.

    The names have surrogate escapes. There may be fewer replies than files: then the time was up. The system ends the
    process at a file that takes more than ``seconds_a_file``.
    """

    root: str
    files: tuple[str, ...]
    seconds: float
    seconds_a_file: float


# --- preview --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreviewTable(JobRequest["TablePreview"]):
    """Describe a Parquet file, the job's only file, and ``show`` its first rows."""

    show: int


@dataclass(frozen=True, slots=True)
class TablePreview:
    """The number of rows, the columns with their types, and the first rows as text."""

    rows: int
    columns: dict[str, str]
    text: str


# --- documents ------------------------------------------------------------------------------------


class DocumentKind(enum.StrEnum):
    """The kinds of documents that can be read."""

    PDF = "pdf"
    DOCX = "docx"


@dataclass(frozen=True, slots=True)
class ReadDocument(JobRequest["DocumentPart"]):
    """Read an open document part by part."""

    kind: DocumentKind


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A page or section: its name, and its text; None when it cannot be read."""

    name: str
    text: str | None


# --- archive --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnpackArchive(JobRequest["UnpackedPieces"]):
    """Unpack an open zip archive with up to ``members`` files, and ``unpacked`` bytes of documents and tables."""

    members: int
    unpacked: int


@dataclass(frozen=True, slots=True)
class UnpackedPiece:
    """A piece of a file: text, or bytes as Base64 when ``encoded``; None when the rest cannot be read.

    ``more`` says that another piece of the file follows.
    """

    name: str
    text: str | None
    encoded: bool
    more: bool


@dataclass(frozen=True, slots=True)
class UnpackedPieces:
    """Many small pieces in one message."""

    pieces: tuple[UnpackedPiece, ...]


# --- URLs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Account:
    """The credentials of the process.

    Attributes:
        prefix: where it may be used.
        endpoint: the server of a store, if it is not the default.
        options: further options of the reading package.
        secrets: all of its texts that must not be revealed.
    """

    prefix: str
    user: str | None
    password: str | None
    key: str | None
    known_hosts: str
    endpoint: str | None
    options: dict[str, Json]
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FetchUrl(JobRequest["UrlFetched"]):
    """Copy up to ``most`` bytes of an http(s) URL into the open file; ``permitted`` are the policy's prefixes."""

    url: str
    permitted: tuple[str, ...]
    most: int
    account: Account | None = None


class ReadRemote(FetchUrl):
    """The same for a URL of another scheme."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UrlFetched:
    """The contents of the URL are in the open file, up to one byte over the limit, which marks a text as too large."""


# --- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobType:
    """The request and reply types of a job, and the module that does it, which only the process imports.

    The module has ``run(spec, request, say)``. If it has ``prepare(request)``, that is called first, before the process
    is confined.
    """

    request: type[JobRequest[Any]]
    reply: type[Any]
    module: str


def _job(request: type[JobRequest[Reply]], reply: type[Reply], module: str) -> JobType:
    """Return the types of a job; mypy refuses a reply type that is not the request's own."""
    return JobType(request, reply, module)


JOBS: Mapping[str, JobType] = {
    "sql": _job(RunSql, SqlPart, "rlm_contexts.helpers.sql"),
    "search": _job(SearchText, SearchAnswer, "rlm_contexts.search.job"),
    "parse": _job(ParseFiles, FileParsed, "rlm_lock.parsing.job"),
    "preview": _job(PreviewTable, TablePreview, "rlm_contexts.helpers.preview"),
    "documents": _job(ReadDocument, DocumentPart, "rlm_contexts.helpers.documents"),
    "archive": _job(UnpackArchive, UnpackedPieces, "rlm_contexts.helpers.archive"),
    "fetch": _job(FetchUrl, UrlFetched, "rlm_contexts.helpers.fetch"),
    "remote": _job(ReadRemote, UrlFetched, "rlm_contexts.helpers.remote"),
}
"""Every job by its name."""

_NAMES = {job.request: name for name, job in JOBS.items()}


def job_of(request: JobRequest[Any]) -> str:
    """Return the name of the job that a request is for."""
    return _NAMES[type(request)]
