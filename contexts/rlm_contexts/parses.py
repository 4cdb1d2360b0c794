"""The request and the result of parsing source files."""

from __future__ import annotations

from rlm_ipc.late_dataclasses import dataclass


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
