"""The console script ``rlm-kernel``.

``rlm-kernel mcp`` is what clients start and wait for: it goes straight to the front, which imports
nothing but a little of the standard library. Everything else is the command line.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run the front or the command line; returns the exit status."""
    if sys.argv[1:] == ["mcp"]:
        from rlm_mcp.front.__main__ import main as front

        return front()
    try:
        from rlm_mcp.cli.app import main as command_line

        return command_line()
    except KeyboardInterrupt:  # while modules were being imported; later, typer sees it
        return 130


if __name__ == "__main__":
    sys.exit(main())
