"""The table of docs/policies.md that says what survives which death: made from what the chaos run has measured.

``make chaos-supervisor RECORD=1`` writes `RECORDED` and the table. The tests hold the page against the record, and each
run of the chaos against what was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECORDED = Path(__file__).parents[1] / "chaos" / "survival.json"
PAGE = Path(__file__).parents[2] / "docs" / "policies.md"
BEGIN, END = "<!-- survival: begin -->\n", "<!-- survival: end -->\n"
MODES = ("off", "lazy", "strict", "durable")
NAMES = {
    "supervisor": "the supervisor",
    "keeper": "the keeper",
    "zygote": "the zygote",
    "copy": "a checkpoint",
    "standby": "the standby supervisor",
    "live": "the session's own process",
    "stopped": "the supervisor, stopped (SIGSTOP)",
    "daemon": "the daemon",
    "front": "the front of an agent",
}
HEAD = (
    "| killed (SIGKILL) | " + " | ".join(f"variables under `{mode}`" for mode in MODES) + " | a running cell |\n"
    "|" + "---|" * (len(MODES) + 2) + "\n"
)


@dataclass
class Measured:
    """What a kind of death did to sessions of one mode: of so many cells that ran how many were undone.

    ``cells`` is the largest number of completed cells that one death took along, and ``everything`` how often all went.
    """

    deaths: int = 0
    undone: int = 0
    cells: int = 0
    everything: int = 0

    def add(self, other: Measured) -> None:
        """Count the other in."""
        self.deaths += other.deaths
        self.undone += other.undone
        self.cells = max(self.cells, other.cells)
        self.everything += other.everything

    def covers(self, other: Measured, *, cells: bool) -> bool:
        """Whether the other one shows nothing worse; the number of ``cells`` counts only where it is a promise."""
        return (
            (other.cells <= self.cells or not cells)
            and (self.everything > 0 or not other.everything)
            and (self.undone > 0 or not other.undone)
        )


@dataclass
class Survival:
    """The results of a run, by who died and the mode of the session."""

    rows: dict[str, dict[str, Measured]] = field(default_factory=dict)

    def of(self, victims: Iterable[str], mode: str) -> Measured:
        """The results of one kind of death."""
        return self.rows.setdefault(" ".join(victims), {}).setdefault(mode, Measured())

    @classmethod
    def recorded(cls) -> Survival:
        """What was measured last."""
        found = json.loads(RECORDED.read_text())
        return cls({who: {mode: Measured(**row) for mode, row in rows.items()} for who, rows in found.items()})

    def record(self, *, add: bool) -> None:
        """Keep it, in place of what was recorded or with it."""
        kept = Survival.recorded() if add else Survival()
        for who, found in self.rows.items():
            for mode, measured in found.items():
                kept.of(who.split(), mode).add(measured)
        rows = {who: {mode: asdict(row) for mode, row in found.items()} for who, found in kept.rows.items()}
        RECORDED.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def table(survival: Survival) -> str:
    """The table as it stands on the page."""
    lines = []
    for who, rows in sorted(survival.rows.items(), key=lambda row: (len(row[0].split()), "live" in row[0], row[0])):
        names = _listed([NAMES[name] for name in who.split()])
        both = Measured()
        for row in rows.values():
            both.add(row)
        lines.append(f"| {names} | {' | '.join(_kept(rows, mode) for mode in MODES)} | {_cell(both)} |\n")
    return HEAD + "".join(lines)


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _kept(rows: Mapping[str, Measured], mode: str) -> str:
    row = rows.get(mode)
    if row is None:  # under ``off`` there is no checkpoint that could die
        return "-"
    if row.everything:
        return "lost" if row.everything == row.deaths else f"lost ({row.everything} of {row.deaths})"
    if row.cells and mode == "durable":
        return "as of the last save"
    if row.cells:
        return f"up to {row.cells} cell lost" if row.cells == 1 else f"up to {row.cells} cells lost"
    return "kept"


def _cell(row: Measured) -> str:
    if not row.undone:
        return f"keeps running ({row.deaths} deaths)"
    return f"undone, as its answer says ({row.deaths} deaths)"


def write_page() -> None:
    """Put the table into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{table(Survival.recorded())}{END}{after}")
