"""What to write instead, for a missing file, or one that a library opens in its own code and is not allowed to.

The wall's own refusals say so themselves. But the code of pyarrow or polars asks the operating system, which only
refuses, and does not know that a relative path for writing means one below the scratch folder. And in a notebook a
person takes a relative path to be relative to the notebook.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from rlm_kernel.worker.traceback import is_of_library, text_of

_PATH: Final = re.compile(r"'([^'\n]+)'|\(os error \d+\): (.+)|^([^\s:]+)$")
"""How these libraries name the file: in quotes, after the system's words, or by its name alone."""


def advice(error: BaseException, readable: Sequence[str], writable: Sequence[str]) -> str:
    """Return what to write instead; empty if the error is a different one, or not a library's."""
    if type(error) not in (PermissionError, FileNotFoundError) or (path := _path(error)) is None:
        return ""
    if type(error) is PermissionError:
        places = f"The session may write below {_said(writable)}, and read below {_said(readable)}"
        return f"{places}: pass {_below(writable[0], path)}" if writable and not os.path.isabs(path) else places
    if os.path.isabs(path):
        return ""
    for folder in writable:
        if os.path.exists(os.path.join(folder, path)):
            return f"This library looks for relative paths in the workspace only: pass {_below(folder, path)}"
    begin = f"Relative paths begin in {_said(readable)}" if readable else "The session reads no files"
    return f"{begin}: load the text as a context with load_context, or in a terminal with `rlm-kernel load`"


def _path(error: BaseException) -> str | None:
    """Return the file that the system refused to a library or the cell; None if code has made up the error."""
    if type(error) is FileNotFoundError and isinstance(named := error.filename, str):
        return named
    found = _PATH.search(text_of(error)) if is_of_library(_last(error.__traceback__)) else None
    return found and (found[1] or found[2] or found[3])


def _last(tb: TracebackType | None) -> str:
    """Return the file of the code that raised it."""
    file = ""
    while tb is not None:
        file, tb = tb.tb_frame.f_code.co_filename, tb.tb_next
    return file


def _said(folders: Sequence[str]) -> str:
    return " and ".join(map(_named, folders)) or "no folder"


def _named(folder: str) -> str:
    """Return a folder; for the scratch folder, the expression that yields it in every session."""
    return "tempfile.gettempdir()" if folder == tempfile.tempdir else folder


def _below(folder: str, path: str) -> str:
    named = _named(folder)
    return repr(os.path.join(folder, path)) if named == folder else f"os.path.join({named}, {path!r})"
