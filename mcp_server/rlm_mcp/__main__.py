"""The console script ``rlm-kernel``.

``rlm-kernel mcp`` is what clients start and wait for: it goes straight to the front, which imports
nothing but a little of the standard library. Everything else is the command line.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the front or the command line; returns the exit status."""
    if sys.argv[1:] == ["mcp"]:
        from rlm_mcp.front.__main__ import main as front

        front()
    _open_what_is_closed()
    try:
        from rlm_mcp.cli.app import main as command_line

        return command_line()
    except KeyboardInterrupt:  # while modules were being imported; later, typer sees it
        return 130


def _open_what_is_closed() -> None:
    """Give the program all of its standard streams: some callers, such as services, close one."""
    while (spare := os.open(os.devnull, os.O_RDWR)) < 3:  # the system gives the lowest number that is free
        pass
    os.close(spare)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


if __name__ == "__main__":
    sys.exit(main())
