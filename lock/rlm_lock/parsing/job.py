"""The job `parse` of a helper process: read files of a project, hash them, and extract what the lock keeps of them.

Parsers are native code and can hang forever. The system ends this process when one file has used its processor time:
nothing polls, and a busy machine costs an honest file nothing. The replies come in the order of the files and at once,
so the caller knows which file it was.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace

from rlm_contexts.helpers.protocol import FileParsed, JobSpec, ParseFiles
from rlm_ipc.regular_files import read_regular
from rlm_lock.extraction.packing import to_bytes
from rlm_lock.extraction.parse import extract, load_grammars, make_ready
from rlm_lock.listing.content import MOST_HASHED, blob_of
from rlm_lock.model import Extract, FileNote
from rlm_lock.parsing.secrets import has_secret

_SECONDS_ALWAYS = 0.1
_BYTES_A_SECOND = 2_000_000
"""The speed expected of an honest file: less than half of that of ordinary sources."""
_NOT_PARSED = frozenset({"large", "long lines", "deep"})


def prepare(_request: ParseFiles) -> None:
    """Load every grammar, before there are walls."""
    load_grammars()


def run(_spec: JobSpec, request: ParseFiles, say: Callable[[FileParsed], None]) -> None:
    """Write what each file contains."""
    remaining = request.seconds
    root = request.root.encode("utf-8", "surrogateescape")
    for name in request.files:
        if remaining <= 0:
            break
        make_ready(name)
        signal.setitimer(signal.ITIMER_PROF, request.seconds_a_file)
        before = time.process_time()
        path = name.encode("utf-8", "surrogateescape")
        data = _content(os.path.join(root, path))
        result = FileParsed("") if data is None else _parsed(path, data)
        seconds = time.process_time() - before
        signal.setitimer(signal.ITIMER_PROF, 0)
        remaining -= wasted(seconds, len(data or b""))
        say(replace(result, seconds=seconds))
        sys.stdout.flush()


def wasted(seconds: float, size: int) -> float:
    """Return how much more processor time a file took than an honest one of that size."""
    return max(0.0, seconds - _SECONDS_ALWAYS - size / _BYTES_A_SECOND)


def _content(path: bytes) -> bytes | None:
    """Return the bytes of a regular file. The walls of this process keep what a link leads to out of reach."""
    data = read_regular(path, MOST_HASHED + 1)
    return None if data is None or len(data) > MOST_HASHED else data


def _parsed(path: bytes, data: bytes) -> FileParsed:
    blob = blob_of(data).hex()
    try:
        found = extract(path.decode("utf-8", "backslashreplace"), data)
        note = FileNote.NOT_PARSED if found.note in _NOT_PARSED else FileNote.NONE
        if found.note != "binary" and has_secret(data):
            found, note = _without_text(found), FileNote.SECRET_TEXT
    except (MemoryError, RecursionError):
        found, note = Extract(note="too large for the parser"), FileNote.NOT_PARSED
    return FileParsed(blob, note.value, b64encode(to_bytes(found)).decode())


def _without_text(found: Extract) -> Extract:
    """Return only the names that a file defines, and which files it needs: a token looks like any other word."""
    imports = tuple(name for name in found.imports if not has_secret(name.encode("utf-8", "replace")))
    return Extract(definitions=found.definitions, imports=imports, note=found.note)
