"""The cells that a session has run, as IPython keeps them, without a database and exports."""

from __future__ import annotations

from IPython.core.history import HistoryManager


class SessionHistory(HistoryManager):
    """IPython's history in memory."""

    # IPython's traits that change with each cell and that nobody observes: a plain attribute costs a tenth.
    _i = _ii = _iii = _i00 = ""

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
