"""From a cell's text to Python: ``%time f()`` becomes the call that `rewriting` knows."""

from __future__ import annotations

import re
from typing import Final

from IPython.core.inputtransformer2 import TransformerManager, cell_magic, leading_indent

from rlm_kernel.worker import parsing

_HINTS: Final = re.compile(r"^[ \t]*(?:[%!?]|\*?[\w.]+\s*=\s*[%!])|\?[ \t]*$|\bget_ipython\b", re.MULTILINE)


def translated(text: str) -> str:
    """Return a cell with its magics as Python; the text itself if it has none, or cannot be parsed."""
    if not _HINTS.search(text) or _is_python(text):
        return text
    # The empty lines before a cell magic stay, so that line numbers do not change.
    body = text.lstrip("\n")
    empty = len(text) - len(body)
    try:
        python = "\n" * empty + str(_manager().transform_cell(body))
    except SyntaxError:
        return text
    return python + "\n" * (text.count("\n") - python.count("\n"))  # a cell magic has become one line


def _is_python(text: str) -> bool:
    try:
        parsing.module(text)
    except parsing.NOT_PYTHON:
        return False
    return True


def _manager() -> TransformerManager:
    manager = TransformerManager()
    manager.cleanup_transforms = [leading_indent]
    manager.line_transforms = [cell_magic]
    return manager
