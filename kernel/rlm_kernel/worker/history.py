"""The cells that a session has run, as IPython keeps them, without a database and exports."""

from __future__ import annotations

import re
from typing import Any

from IPython.core.history import HistoryManager

from rlm_kernel.worker.traceback import name_of


class SessionHistory(HistoryManager):
    """IPython's history in memory."""

    # IPython's traits that each cell reads or sets and that nobody observes: a plain attribute costs a tenth.
    _i = _ii = _iii = _i00 = ""
    input_hist_parsed: Any = None
    input_hist_raw: Any = None
    output_hist_reprs: Any = None
    exceptions: Any = None

    def __init__(self, **options: Any) -> None:
        self.input_hist_parsed, self.input_hist_raw = [""], [""]
        self.output_hist_reprs, self.exceptions = {}, {}
        super().__init__(**options)

    def store_inputs(self, line_num: int, source: str, source_raw: str | None = None) -> None:
        """Keep a cell as it was run, and as it was written: as ``_i1``, and next as ``_i``, ``_ii`` and ``_iii``."""
        written = (source if source_raw is None else source_raw).rstrip("\n")
        self.input_hist_parsed.append(source.rstrip("\n"))
        self.input_hist_raw.append(written)
        self._i, self._ii, self._iii, self._i00 = self._i00, self._i, self._ii, written
        named = {"_i": self._i, "_ii": self._ii, "_iii": self._iii, f"_i{line_num}": written}
        shell = self.shell
        shell.user_ns.update(named)
        shell.user_ns_hidden.update(named)


Cell = tuple[int, int, str]


def chosen_cells(
    cells: list[Cell],
    kind: str,
    start: int,
    stop: int | None,
    n: int | None,
    pattern: str | None,
    unique: bool,
) -> list[Cell]:
    """Return the cells that a request for the history asks for."""
    if kind == "range":
        end = len(cells) + 1 if stop is None else stop
        return [cell for cell in cells if start <= cell[1] < end]
    if kind == "search":
        glob = re.compile("".join(_GLOB.get(c, re.escape(c)) for c in pattern or "*"), re.DOTALL)
        cells = [cell for cell in cells if glob.fullmatch(cell[2])]
        if unique:
            cells = list({cell[2]: cell for cell in cells}.values())
    return cells[-n:] if n else cells


_GLOB = {"*": ".*", "?": "."}
_PLAIN = (str, int, float, bool, bytes, type(None))


def plain_result(value: Any) -> str | None:
    """Return the text of a plain value, of any other only its type; None for None."""
    return None if value is None else repr(value) if type(value) in _PLAIN else f"<{name_of(type(value))}>"
