"""Files of prose with rules: which they are, for which paths, and what they include."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.names import shown

_MOST_INCLUDES = 10
_LONGEST_MATTER = 4000
_KEY = re.compile(r"([A-Za-z]\w*):(.*)")
_INCLUDE = re.compile(r"@([^\s@`]{1,500})")


def _everything(folder: str, text: str) -> tuple[str, ...]:
    return (posixpath.join(folder, "**") if folder else "**",)


def _by_key(key: str) -> Callable[[str, str], tuple[str, ...]]:
    """Take the patterns from the front matter; they are relative to the folder that contains the tool's own."""

    def patterns(folder: str, text: str) -> tuple[str, ...]:
        listed = front_matter_list(text, key)
        return tuple(shown(posixpath.join(folder, each)) for each in listed) or _everything(folder, text)

    return patterns


@dataclass(frozen=True, slots=True)
class TextKind:
    """A kind of text with rules.

    Attributes:
        path: the pattern of its whole path; the group ``folder`` is where it applies.
        applies_to: its patterns, by that folder and its text.
        is_nested: whether a file of the same name in a folder below replaces it there.
    """

    path: re.Pattern[bytes]
    applies_to: Callable[[str, str], tuple[str, ...]] = _everything
    is_nested: bool = False


_ANYWHERE = rb"(?:(?P<folder>.*)/)?"
TEXTS = (
    TextKind(re.compile(_ANYWHERE + rb"(?:AGENTS|CLAUDE|GEMINI|QWEN)\.md", re.DOTALL), is_nested=True),
    TextKind(re.compile(rb"\.github/copilot-instructions\.md")),
    TextKind(re.compile(rb"\.github/instructions/.*\.md", re.DOTALL), _by_key("applyTo")),
    TextKind(re.compile(_ANYWHERE + rb"\.cursor/rules/.*\.mdc", re.DOTALL), _by_key("globs")),
    TextKind(re.compile(_ANYWHERE + rb"\.windsurf/rules/.*\.md", re.DOTALL)),
    TextKind(re.compile(_ANYWHERE + rb"\.(?:cursorrules|windsurfrules|clinerules)", re.DOTALL)),
    TextKind(re.compile(rb"(?:docs/|\.github/)?CONTRIBUTING(?:\.md|\.rst|\.txt)?")),
)
"""Every kind of text with rules; the first match counts."""


def front_matter_list(text: str, key: str) -> list[str]:
    """Return the list under a key of the front matter, without parsing YAML.

    It may be ``a, b``, ``[a, b]``, or one ``- a`` per line.
    """
    head, closing, _ = text.removeprefix("---\n")[:_LONGEST_MATTER].partition("\n---")
    if not closing or not text.startswith("---\n"):
        return []
    entries: list[str] = []
    current = ""
    for line in head.split("\n"):
        if match := _KEY.match(line):
            current = match[1]
            if current == key:
                entries += _braced(match[2].strip().removeprefix("[").removesuffix("]"))
        elif current == key and line.strip().startswith("- "):
            entries.append(line.strip()[2:])
    cleaned = (each.strip().strip("'\"").strip() for each in entries)
    return [each for each in cleaned if each and not each.startswith("/") and ".." not in each.split("/")][:50]


def _braced(listed: str) -> list[str]:
    """Split at commas, but not inside braces: ``*.{ts,tsx}`` is one pattern."""
    parts, depth = [""], 0
    for character in listed:
        depth += (character == "{") - (character == "}")
        if character == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def included_paths(text: str, folder: str) -> list[str]:
    """Return the files of the project that a text includes with ``@path`` alone on a line, relative to its folder."""
    found: list[str] = []
    for line in text.split("\n"):
        if (match := _INCLUDE.fullmatch(line.strip())) and not match[1].startswith(("/", "~")):
            path = posixpath.normpath(posixpath.join(folder, match[1]))
            if not path.startswith("..") and path not in found:
                found.append(path)
    return found[:_MOST_INCLUDES]
