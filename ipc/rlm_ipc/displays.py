"""What cells show: the rich forms that the journal keeps, and text that is safe for a terminal.

`rlm_kernel.jupyter.sanitizer` says what front ends may show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rlm_ipc.messages import JsonObject

PICTURES = ("image/png", "image/jpeg", "image/gif")
RICH = ("text/html", *PICTURES)
MARKDOWN = "text/markdown"
_KEPT = frozenset((*RICH, MARKDOWN))
MOST_KEPT_CHARS = 512 << 10
"""Characters of a cell's pictures and HTML that the journal keeps."""
_STYLE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)", re.DOTALL)
"""What would move a terminal's cursor or colour its text."""


def kept(displays: Iterable[JsonObject]) -> list[dict[str, str]]:
    """Return the part of a cell's displays that the journal keeps: pictures, HTML and Markdown, with their text forms.

    A display that is too large for the rest of `MOST_KEPT_CHARS` is left out.
    """
    left, found = MOST_KEPT_CHARS, []
    for forms in displays:
        if _KEPT.isdisjoint(forms):  # as for most values
            continue
        known = {kind: forms[kind] for kind in ("text/plain", *sorted(_KEPT)) if isinstance(forms.get(kind), str)}
        size = sum(map(len, known.values()))
        if known.keys() & _KEPT and size <= left:
            left -= size
            found.append(known)
    return found


def with_traceback(output: str, traceback: Sequence[str]) -> str:
    """Return a cell's output with its whole traceback in place of the error at its end."""
    whole = unstyled("\n".join(traceback))
    starts = [0, *(match.end() for match in re.finditer("\n", output))]
    same = next((at for at in starts if output[at:] and whole.endswith(output[at:])), None)
    return output if same is None else output[:same] + whole


def some_of(ids: Sequence[str], most: int = 6) -> str:
    """Return the first ids of a list for a sentence: a batch asks up to a thousand queries."""
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return f"{', '.join(ids[:most])}{more}"


def printable(text: str, keep: str = "\n\t") -> str:
    """Escape what a terminal would interpret, except the characters in ``keep``: code and models write hostile text."""
    return "".join(char if char.isprintable() or char in keep else repr(char)[1:-1] for char in text)


def unstyled(text: str) -> str:
    """Return a text as a terminal would show it: no colours, and overwritten lines in their last state."""
    lines = _STYLE.sub("", text).split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
