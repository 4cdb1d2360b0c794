"""Finds the files with rules, reads them within bounds, and makes one rule of each."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rlm_lock.names import shown, text_of
from rlm_lock.sections.globs import matches
from rlm_lock.sections.rules.model import (
    Rule,
    RuleKind,
    Rules,
    RuleSet,
    Severity,
    first_sentence,
    in_set,
    safe_text,
)
from rlm_lock.sections.rules.texts import TEXTS, TextKind, included_paths
from rlm_lock.sections.rules.tools import TOOLS, ToolKind
from rlm_lock.sections.view import ProjectView, is_below, top_first

MOST_RULES = 200
LONGEST_TEXT = 32_000
LONGEST_CONFIGURATION = 256_000
MOST_TEXT = 512_000
"""Maximum bytes of all rules together."""

_MAY_BE_RULES = re.compile(
    rb"(?:^|/)(?:\.[^/]+|[^/]+\.(?:md|mdc|rst|txt|ya?ml|toml|jsonc?|ini)|\w+\.config\.\w+|CONTRIBUTING|\w*[mM]akefile"
    rb"|[jJ]ustfile)$"
)
"""The names of all files with rules match it; most files of a large project do not."""

_LONGEST_SLUG = 40
_TOOL_NAMES = 8


def rules_of(
    view: ProjectView, active: RuleSet = RuleSet.FULL, below: bytes = b"", most_severe: Sequence[str] = ()
) -> Rules:
    """Return the rules of a project, or those that hold in one of its folders.

    Args:
        view: the project.
        active: which rules are wanted.
        below: the folder that is worked in: rules of the folders above it apply there too.
        most_severe: patterns of the sources whose rules have severity P0, from the policy.
    """
    collecting = _Collecting(view, most_severe)
    named = (entry.path for entry in view.files() if _MAY_BE_RULES.search(entry.path))
    for path in top_first(path for path in named if _concerns(path, below)):
        collecting.take(path)
    rules = _nearest(collecting.rules, text_of(below))
    return Rules(
        rules=tuple(rule for rule in rules if in_set(rule, active)), active_set=active, missing=collecting.missing()
    )


def _concerns(path: bytes, folder: bytes) -> bool:
    """Return whether a file may hold rules for a folder: it is in it, or above it, or in a tool's settings."""
    above = path.rpartition(b"/")[0]
    return is_below(path, folder) or is_below(folder, above) or folder == above or above.startswith((b".", b"docs"))


class _Collecting:
    """Makes rules of files until a bound is reached."""

    def __init__(self, view: ProjectView, most_severe: Sequence[str]) -> None:
        self._view = view
        self._most_severe = most_severe
        self._left = MOST_TEXT
        self._left_out = 0
        self._unread: list[str] = []
        self.rules: list[Rule] = []

    def take(self, path: bytes) -> None:
        """Make the rules of one file: none, one, or one for each kind that it has."""
        for text_kind in TEXTS:
            if match := text_kind.path.fullmatch(path):
                self._take_text(path, text_kind, match)
                return
        for tool_kind in TOOLS:
            if tool_kind.name.fullmatch(path):
                self._take_tool(path, tool_kind)

    def _take_text(self, path: bytes, kind: TextKind, match: re.Match[bytes]) -> None:
        text = self._read(path)
        if text is None:
            return
        folder = text_of(match.groupdict().get("folder") or b"")
        parts, includes = [text], []
        for name in included_paths(text, posixpath.dirname(text_of(path))):
            if (included := self._read(name.encode())) is not None:
                includes.append(shown(name))
                parts.append(f"[{shown(name)}]\n{included}")
        self._add(
            path,
            RuleKind.TEXT,
            description=first_sentence(text),
            applies_to=tuple(shown(pattern) for pattern in kind.applies_to(folder, text)),
            text="\n\n".join(parts),
            includes=tuple(includes),
        )

    def _take_tool(self, path: bytes, kind: ToolKind) -> None:
        text = self._read(path, LONGEST_CONFIGURATION)
        found = kind.find(text) if text is not None else None
        if found is None or not found.names:
            return
        folder = posixpath.dirname(text_of(path))
        names = ", ".join(found.names[:_TOOL_NAMES]) + (", …" if len(found.names) > _TOOL_NAMES else "")
        is_tool = kind.kind is RuleKind.TOOL
        self._add(
            path,
            kind.kind,
            description=f"{'It configures' if is_tool else 'It has the commands'}: {names}",
            applies_to=(shown(posixpath.join(folder, "**")) if folder and not folder.startswith(".") else "**",),
            text="\n".join(shown(line[:LONGEST_TEXT]) for line in found.lines),
        )

    def _read(self, path: bytes, longest: int = LONGEST_TEXT) -> str | None:
        if len(self.rules) >= MOST_RULES or self._left <= 0:
            self._left_out += 1
            return None
        data = self._view.read(path, longest + 1)
        if data is None:
            why = "it is no regular file of the project, or its name says that it holds secrets."
            self._unread.append(f"{shown(path)} is not read: {why}")
            return None
        self._left -= len(data)
        if len(data) > longest:
            self._unread.append(f"{shown(path)} is cut after {longest:,} bytes.")
        return safe_text(data[:longest])

    def _add(
        self,
        path: bytes,
        kind: RuleKind,
        *,
        description: str,
        applies_to: tuple[str, ...],
        text: str,
        includes: tuple[str, ...] = (),
    ) -> None:
        source = shown(path)
        slug = re.sub(r"[^a-z0-9]+", "_", source.lower()).strip("_")[-_LONGEST_SLUG:].strip("_")
        is_severe = any(matches(pattern, source) for pattern in self._most_severe)
        self.rules.append(
            Rule(
                id=f"R{len(self.rules) + 1:03}_{slug}",
                enabled=True,
                severity=Severity.P0 if is_severe else Severity.P1,
                description=description[:LONGEST_TEXT],
                applies_to=applies_to,
                source=source,
                kind=kind,
                text=text,
                includes=includes,
            )
        )

    def missing(self) -> tuple[str, ...]:
        """Return what was left out, as sentences."""
        most = 20
        more = len(self._unread) - most
        return (
            *self._unread[:most],
            *([f"{more} more files with rules were not read whole."] if more > 0 else []),
            *([f"{self._left_out} files with rules were left out: there are too many."] if self._left_out else []),
        )


def _nearest(rules: Sequence[Rule], folder: str) -> Iterator[Rule]:
    """Disable a file of rules if one with the same name is nearer to the requested folder."""
    nearest: dict[str, str] = {}
    for rule in filter(_is_nested, rules):
        place, name = posixpath.split(rule.source)
        if _holds(place, folder):
            nearest[name] = max(nearest.get(name, ""), place, key=len)
    for rule in rules:
        place, name = posixpath.split(rule.source)
        is_far = _is_nested(rule) and _holds(place, folder) and len(place) < len(nearest[name])
        yield replace(rule, enabled=False) if is_far else rule


def _is_nested(rule: Rule) -> bool:
    return any(kind.is_nested and kind.path.fullmatch(rule.source.encode()) for kind in TEXTS)


def _holds(folder: str, inner: str) -> bool:
    return not folder or inner == folder or inner.startswith(f"{folder}/")
