"""Ask a confined process what a Parquet file holds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rlm_kernel.confined.process import Job, Limits, messages
from rlm_kernel.contexts.errors import HelperDied, MissingExtra

__all__ = ["Preview", "preview"]

_LIMITS = Limits(seconds=40.0, memory=512 << 20, answer=16 << 20)
_COLUMNS, _LONGEST = 100, 200


@dataclass(frozen=True, slots=True)
class Preview:
    """Rows and columns with their types, and the first rows as text."""

    shape: dict[str, Any]
    text: str


def preview(path: Path) -> Preview:
    """What the file holds.

    Raises: SourceError when it is damaged, MissingExtra, HelperTimeout, HelperDied.
    """
    try:
        said = next(messages(Job("preview", {}, [path]), _LIMITS), {})
    except MissingExtra as missing:
        raise MissingExtra(f"{missing}; Parquet files need it: pip install 'rlm-kernel[query]'") from missing
    match said:
        case {"rows": int(rows), "columns": dict(columns), "text": str(text)}:
            named = {str(name)[:_LONGEST]: str(kind)[:_LONGEST] for name, kind in islice(columns.items(), _COLUMNS)}
            return Preview({"rows": rows, "columns": named}, text)
    raise HelperDied("gave an answer that makes no sense")
