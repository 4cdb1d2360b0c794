"""The program `python -m rlm_lock.scanner`; see `rlm_lock.protocol` for its input and output."""

from __future__ import annotations

import os
import resource
from contextlib import suppress

from rlm_ipc.processes import die_with_parent, finish_startup
from rlm_lock.scanner.lines import DaemonGone, Lines
from rlm_lock.scanner.process import serve

_MEMORY = 1 << 30


def main() -> None:
    """Serve the daemon that started this process, and no longer than it lives.

    Someone waits for its answers, so it has ordinary priority; its parsing and indexing processes have a low one.
    """
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
    finish_startup()
    lines = Lines(0, 1)
    with suppress(DaemonGone):
        if (spec := lines.next(60.0)) is not None:
            serve(spec, lines)


if __name__ == "__main__":
    main()
