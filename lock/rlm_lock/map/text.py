"""The text of a map: the first files in order, the others by folder, within a number of tokens."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.names import shown

FIRST = 10
"""Files that are shown in order, with their full paths. Grouping saves tokens but loses the order."""
_USED = 0.9
"""The share of the tokens that is used: costs were measured, and another tokenizer may count more."""
_PIECES = re.compile(r"[A-Z]?[a-z]{1,8}|[A-Z]{1,3}|[0-9]{1,3}|[!-/:-@\[-`{-~]|\n")
_MOST_REFUSED = 4
"""How many files may be left out because they do not fit, in favour of shorter ones after them."""
_CLUMSY = re.compile(r"[qxzjvk][bcdfghjklmnpqrstvwxz]|[bcdfghjklmnpqrstvwxz]{3}", re.IGNORECASE)
"""Letters that no language puts next to each other: a tokenizer splits them."""
_RUN = re.compile(r"[a-z]{14,}")


@dataclass(frozen=True, slots=True)
class Line:
    """A file of a map: its folder, its name, and names that it defines with their lines, best first."""

    folder: str
    base: str
    symbols: Sequence[tuple[str, int]]


@functools.lru_cache(maxsize=4_096)
def estimated(text: str) -> float:
    """Estimate how many tokens a text takes, erring on the high side.

    For maps of fourteen projects cl100k_base counts between 0.6 and 0.91 of it.
    """
    wide = 0 if text.isascii() else len(text.encode()) - len(text)
    long = sum(len(run) for run in _RUN.findall(text)) // 3
    return len(_PIECES.findall(text)) + len(_CLUMSY.findall(text)) + 2 * wide + long


def text_of(lines: Iterable[Line], tokens: int) -> tuple[str, int]:
    """Return the map of these files, in order, and how many of them it names."""
    budget = tokens * _USED
    first: list[str] = []
    groups: dict[str, list[str]] = {}
    refused = 0
    for place, line in enumerate(lines):
        in_order = place < FIRST
        text = _in_order(line) if in_order else _in_group(line, place)
        cost = estimated(text)
        if not in_order and line.folder not in groups:
            cost += estimated(_heading(line.folder))
        if cost > budget:
            refused += 1
            if refused > _MOST_REFUSED:
                break
            continue
        budget -= cost
        if in_order:
            first.append(text)
        else:
            groups.setdefault(line.folder, []).append(text)
    rest = "".join(f"{_heading(folder)}{''.join(entries)}" for folder, entries in groups.items())
    return "".join(first) + rest, len(first) + sum(map(len, groups.values()))


def _in_order(line: Line) -> str:
    path = f"{line.folder}/{line.base}" if line.folder else line.base
    symbols = " ".join(f"{shown(name)}:{number}" for name, number in line.symbols[:5])
    return f"{shown(path)}: {symbols}".rstrip() + "\n"


def _in_group(line: Line, place: int) -> str:
    symbols = " ".join(shown(name) for name, _ in line.symbols[: 3 if place < 24 else 1])
    return f" {shown(line.base)}: {symbols}\n" if symbols else f" {shown(line.base)}\n"


def _heading(folder: str) -> str:
    return f"{shown(folder)}/\n" if folder else "./\n"
