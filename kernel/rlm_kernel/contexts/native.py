"""The inner loops over lines: those of `_native.c` if it could be compiled at installation, else those of `plain`.

What is in C makes a line in less than half the time, and answers `lines[i]` in a fifth of it.
"""

from typing import TYPE_CHECKING

__all__ = ["COMPILED", "LineCache", "equal_lines", "line_starts", "ranks", "split"]

COMPILED = False
"""Whether these are those in C."""
if TYPE_CHECKING:
    from .plain import LineCache, equal_lines, line_starts, ranks, split
else:
    try:
        from ._native import LineCache, equal_lines, line_starts, ranks, split

        COMPILED = True
    except ImportError:  # no compiler was at hand
        from .plain import LineCache, equal_lines, line_starts, ranks, split
