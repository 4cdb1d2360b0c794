"""The daemon's log: one JSON object per line in a rotating file, for our records and those of libraries.

The ``extra`` fields of a record become members of its line. A traceback is logged as text, without the variables of
its frames, because they contain users' texts and questions.
"""

from __future__ import annotations

import logging
import logging.handlers
from contextvars import ContextVar
from pathlib import Path

from pythonjsonlogger.json import JsonFormatter

LARGEST_FILE = 5 * 1024 * 1024
KEPT_FILES = 3
MEMBERS = {"message": "event", "levelname": "level", "name": "logger", "exc_info": "exception"}

current_client: ContextVar[int | None] = ContextVar("rlm_mcp_log_client", default=None)
"""The process at the other end of the current connection; each of its log lines names it."""


def log_to(file: Path) -> None:
    """Send the records of all loggers to ``file`` (mode 0600), at most 20 MiB."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    handler = logging.handlers.RotatingFileHandler(
        file, maxBytes=LARGEST_FILE, backupCount=KEPT_FILES, encoding="utf-8", errors="backslashreplace"
    )
    handler.addFilter(_name_client)
    handler.setFormatter(JsonFormatter(list(MEMBERS), rename_fields=MEMBERS, timestamp=True))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    # A record that cannot be written is dropped: its traceback would hide the reason why a daemon did not start.
    logging.raiseExceptions = False
    # A line for each request to a model costs a tenth of its processor time; the journal has these requests anyway.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def _name_client(record: logging.LogRecord) -> bool:
    if (client := current_client.get()) is not None:
        record.client = client
    return True
