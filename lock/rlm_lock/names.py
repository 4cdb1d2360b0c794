"""Names of a repository's files are hostile text: here they are made safe to show and store."""

from __future__ import annotations

import unicodedata

_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories whose characters forge lines, hide, or reverse their surroundings."""


def text_of(path: bytes) -> str:
    """Return a path as text: bytes that are not UTF-8 are escaped, as in Python."""
    return path.decode("utf-8", "backslashreplace")


def shown(name: str | bytes) -> str:
    """Return a name as one line of valid UTF-8: no control characters, no direction marks, nothing invisible."""
    text = text_of(name) if isinstance(name, bytes) else name
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _ESCAPED else c for c in text)


def _escaped(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
