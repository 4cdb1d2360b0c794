"""The table of SECURITY.md: what a run of every case measured, on each Python that it was run on.

`make escapes ARGS=--table` keeps the counts of its Python in `measured.json` and writes the table from those of all.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from escape_arena import Outcome
from escape_corpus import Case

MEASURED: Final = Path(__file__).with_name("measured.json")
DOCUMENT: Final = Path(__file__).parents[2] / "SECURITY.md"
BEGIN: Final = "<!-- escapes: written by `.ci/each-python make escapes ARGS=--table` -->"
END: Final = "<!-- /escapes -->"
COLUMNS: Final = {"no wall": "no wall", "language": "language", "os": "operating system"}
"""What was tried, and its title."""

Counts = dict[str, dict[str, list[int]]]
"""By family: how many cases there are, and of each column how many went as they must and how many were tried."""


def keep(families: Mapping[str, list[Case]], tried: Mapping[str, Mapping[str, list[Outcome]]]) -> None:
    """Keep what was measured on this Python, and write the table."""
    measured = load()
    version = sys.version_info[:2]
    others = {python: counts for python, counts in measured.items() if _version(python)[:2] != version}
    here = {family: _counts(family, cases, tried) for family, cases in families.items()}
    measured = others | {".".join(map(str, sys.version_info[:3])): here}
    ordered = dict(sorted(measured.items(), key=lambda item: _version(item[0])))
    lines = [f' "{python}": {{\n{_rows(counts)}\n }}' for python, counts in ordered.items()]
    MEASURED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n{table(ordered)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def load() -> dict[str, Counts]:
    """What was measured, by Python."""
    measured: dict[str, Counts] = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    return measured


def table(measured: Mapping[str, Counts]) -> str:
    """The table in Markdown; a cell has a number for each Python where these differ."""
    last = list(measured.values())[-1]
    rows = [
        f"| family | cases | {' | '.join(COLUMNS.values())} |",
        "|---" * (len(COLUMNS) + 2) + "|",
        *(_row(f"`{family}`", [counts[family] for counts in measured.values()]) for family in last),
        _row("all", [_sum(counts) for counts in measured.values()]),
    ]
    return f"Measured on CPython {', '.join(measured)}.\n\n" + "\n".join(rows)


def _row(title: str, pythons: list[dict[str, list[int]]]) -> str:
    cells = [str(pythons[-1]["cases"][0])]
    for column in COLUMNS:
        texts = ["/".join(map(str, counts[column])) if counts[column][1] else "-" for counts in pythons]
        cells.append(texts[0] if len(set(texts)) == 1 else ", ".join(texts))
    return f"| {title} | {' | '.join(cells)} |"


def _counts(family: str, cases: list[Case], tried: Mapping[str, Mapping[str, list[Outcome]]]) -> dict[str, list[int]]:
    counts = {"cases": [len(cases)]}
    for column in COLUMNS:
        good: dict[str, bool] = {}  # a case that is tried as several users must be held for each of them
        for name, found in tried.items():
            if name == column or name.startswith(f"{column} ("):
                for outcome in found.get(family, []):
                    well = outcome.escaped == (column == "no wall")
                    good[outcome.case.id] = well and good.get(outcome.case.id, True)
        counts[column] = [sum(good.values()), len(good)]
    return counts


def _sum(counts: Counts) -> dict[str, list[int]]:
    names = ("cases", *COLUMNS)
    return {name: [sum(parts) for parts in zip(*(row[name] for row in counts.values()), strict=True)] for name in names}


def _rows(counts: Counts) -> str:
    return ",\n".join(f"  {json.dumps(family)}: {json.dumps(row)}" for family, row in counts.items())


def _version(python: str) -> tuple[int, ...]:
    return tuple(map(int, python.split(".")))
