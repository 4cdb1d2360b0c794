"""Cells as agents write them for a session: each file of ``cells`` is one session's, cells divided by ``# %%``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from cases import Case, Corpus
from corpora.doctests import OFTEN

FOLDER = Path(__file__).with_name("cells")
_DIVIDER = re.compile(r"^# %%\n", re.MULTILINE)
_LIBRARIES = (*OFTEN, "scipy.optimize", "scipy.signal", "scipy.spatial", "scipy.cluster.hierarchy", "networkx")


def cells_of(text: str) -> tuple[str, ...]:
    """The cells of a file."""
    return tuple(_DIVIDER.split(text)[1:])


def with_its_value(cell: str) -> str:
    """Print the value that a notebook would show below the cell: that of an expression at its end."""
    last = ast.parse(cell).body[-1]
    if not isinstance(last, ast.Expr):
        return cell
    lines = cell.encode().splitlines(keepends=True)
    before = b"".join(lines[: last.lineno - 1]) + lines[last.lineno - 1][: last.col_offset]
    value = ast.get_source_segment(cell, last)
    return f"{before.decode()}_ = (\n{value}\n)\nif _ is not None:\n    print(repr(_))\n"


def read(policy: str) -> Callable[[], Iterator[Case]]:
    """Read the sessions that were written for a policy."""

    def cases() -> Iterator[Case]:
        for path in sorted((FOLDER / policy).glob("*.py")):
            cells = cells_of(path.read_text(encoding="utf-8"))
            yield Case(f"{policy}/{path.name}", tuple(map(with_its_value, cells)))

    return cases


CORPORA = (
    Corpus("agent cells", "", "default", read("default")),
    Corpus("agent cells, data", "pandas", "data", read("data"), _LIBRARIES, "pandas"),
)
