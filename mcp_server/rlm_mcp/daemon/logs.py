"""The daemon's log: one JSON object a line in a file that rotates, ours and the libraries' alike.

What belongs to an event is given as ``extra`` and becomes a member of its line. A traceback is its text: where it
broke, without the variables of the frames, for they hold what people load and ask.
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
"""The process at the other end of the connection that is being served; each line of it names it."""


def log_to(file: Path) -> None:
    """Send the records of all loggers to ``file``, 0600, at most 20 MiB of it."""
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
    # What the log has no room for is lost: its traceback would stand where others look for why no daemon has started.
    logging.raiseExceptions = False
    # A line for each request of a model costs a tenth of the request's processor time, and journal and rows hold it.
    logging.getLogger("httpx2").setLevel(logging.WARNING)


def _name_client(record: logging.LogRecord) -> bool:
    if (client := current_client.get()) is not None:
        record.client = client
    return True
