"""Lines of a loaded text, which a snapshot keeps by the name of the text: `lines = log['lines']`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_contexts.text.lines import Lines, span_of
from rlm_contexts.view.variable import ContextVariable
from rlm_kernel.worker.snapshots.common import Lost, Making, Unavailable, Unkept, expect
from rlm_kernel.worker.snapshots.kinds import add


def split_lines(lines: Lines, contexts: Mapping[str, ContextVariable]) -> tuple[ContextVariable, str, int, int]:
    """Return the context of the lines, the hash of its text, the first line and the one after the last.

    Raises:
        Unkept: the text is no longer loaded.
    """
    text, first, end = span_of(lines)
    for context in contexts.values():
        if type(context) is ContextVariable and context.text is text:
            return context, text.facts.digest, first, end
    raise Unkept("its text is not loaded any more: keep list() of it")


def _make_lines(_: Making, context: Any, digest: Any, first: Any, end: Any) -> Lines | Lost:
    if type(context) is Lost:
        return context
    text = expect(context, ContextVariable).text
    if text.facts.digest != expect(digest, str):
        raise Unavailable("it needs the lines of a text that is another one here")
    if not 0 <= expect(first, int) <= expect(end, int) <= text.line_count:
        raise Unkept("it has lines that its text does not have")
    whole: Lines = context["lines"]
    return whole if end - first == len(whole) else Lines(text, first, end)


add("lines", (), lambda value: (value,), _make_lines)  # `split_lines` splits: it needs the contexts
