"""The daemon's log: one JSON object a line in a file that rotates, ours and the libraries' alike."""

from __future__ import annotations

import logging
import logging.handlers
from pathlib import Path

import structlog

LARGEST_FILE = 5 * 1024 * 1024
KEPT_FILES = 3

_SHARED: list[structlog.typing.Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    # Without the variables of the frames: they hold what people load and ask.
    structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
]


def log_to(file: Path, level: str = "INFO") -> None:
    """Send structlog's and the standard library's records to ``file``, 0600, at most 20 MiB of it."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    handler = logging.handlers.RotatingFileHandler(
        file, maxBytes=LARGEST_FILE, backupCount=KEPT_FILES, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
