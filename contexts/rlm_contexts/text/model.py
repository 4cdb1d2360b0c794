"""The facts about a text, measured once while it is read, and the constants that its files share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from rlm_contexts.errors import CorruptText
from rlm_ipc.late_dataclasses import dataclass

BLOCK = 1 << 14
"""Bytes per block of the line index: one cumulative newline count for each."""


@dataclass(frozen=True, slots=True)
class StoredText:
    """One immutable text, valid UTF-8.  All sizes are of the text after normalisation.

    Attributes:
        digest: name in the store, xxh3_128 as 32 hex digits (plus "-n" after a collision); "" when not
            stored.
        size: bytes of UTF-8.
        chars: characters, what `len(content)` gives.
        line_count: lines; a line ends at a newline, the last one also at the end of the text.
        open_end: the last line has no newline.
        unit: bytes per character of the narrowest Python string that can hold it: 1, 2 or 4.
        ascii: every byte is below 128, so that the UTF-8 form is that Python string.
        crlf: at least one line ends in a carriage return, which is not part of the line.
        replacements: invalid sequences of the source that became U+FFFD.
        data: bytes of a binary file (a table) that is kept unchanged beside a text which describes it; 0 for an
            ordinary text.
    """

    digest: str
    size: int
    chars: int
    line_count: int
    open_end: bool
    unit: int
    ascii: bool
    crlf: bool
    replacements: int
    data: int = 0

    @property
    def loaded(self) -> int:
        """Bytes that were loaded."""
        return self.data or self.size

    @property
    def newlines(self) -> int:
        """How many newline characters the text holds."""
        return self.line_count - self.open_end

    def to_dict(self) -> dict[str, str | int]:
        """The fields as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StoredText:
        """The inverse of `to_dict`; keys it does not know are ignored.

        Raises: CorruptText when a field is missing or has another type.
        """
        try:
            found = {field.name: values[field.name] for field in fields(cls) if field.name != "data"}
            found["data"] = values.get("data", 0)
        except KeyError as missing:
            raise CorruptText(f"a context header lacks the field {missing}; load the text again") from None
        for name, kind in _KINDS.items():
            if type(found[name]) is not kind:
                raise CorruptText(f"the field {name!r} of a context header is not {kind.__name__}; load the text again")
        return cls(**found)


_KINDS: dict[str, type] = {
    "digest": str, "size": int, "chars": int, "line_count": int, "open_end": bool,
    "unit": int, "ascii": bool, "crlf": bool, "replacements": int, "data": int,
}  # fmt: skip
