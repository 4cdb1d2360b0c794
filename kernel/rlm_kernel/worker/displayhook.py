"""IPython's way from a value to its representations, shortened for values that have only one."""

from __future__ import annotations

from typing import Any

from ipykernel.displayhook import ZMQShellDisplayHook
from IPython.core.formatters import DisplayFormatter

_PLAIN = frozenset((int, bool, str, bytes, complex))


class QuickFormatter(DisplayFormatter):
    """Skips IPython's eleven formatters for types that have no representation but their ``repr``.

    Under the language wall nothing can register a formatter for a built-in type; without it all are asked.
    """

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Representations by MIME type, and their metadata."""
        if type(obj) in _PLAIN and self.parent.wall is not None and include is exclude is None:
            try:
                return {"text/plain": repr(obj)}, {}
            except ValueError:
                pass  # an integer with more digits than Python converts: IPython reports it in its own way
        formats, metadata = super().format(obj, include, exclude)
        return formats, metadata


class QuickDisplayHook(ZMQShellDisplayHook):
    """Splits a cell into tokens only when it could end in the semicolon that keeps its value from being shown."""

    exec_result = None  # a trait of IPython's, which nobody observes

    def quiet(self) -> bool:
        """Whether the cell ends in a semicolon."""
        cells = self.shell.history_manager.input_hist_parsed
        return bool(cells) and ";" in cells[-1] and bool(super().quiet())
