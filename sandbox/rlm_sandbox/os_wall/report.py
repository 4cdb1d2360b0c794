"""Which walls stand around a session, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from rlm_sandbox.errors import WallMissingError
from rlm_sandbox.os_wall.confining import ConfiningPolicy
from rlm_sandbox.policy.layer_names import WALL_NAMES, WallName


@dataclass(frozen=True)
class Wall:
    """The state of one wall."""

    standing: bool
    detail: str
    """What it holds, or why it does not stand and how to raise it."""


class WallReport(Mapping[str, Wall]):
    """Wall name -> state, in the order of `WALL_NAMES`; walls nobody has reported on are left out."""

    def __init__(self, walls: Mapping[str, Wall] | None = None) -> None:
        self._walls: dict[str, Wall] = dict(walls or {})

    @classmethod
    def from_dict(cls, walls: Mapping[str, Mapping[str, object]]) -> WallReport:
        """The report that `to_dict` gave; it may come from a kernel, so only known names are taken."""
        known = {name: walls[name] for name in WALL_NAMES if name in walls}
        return cls({name: Wall(wall["standing"] is True, str(wall["detail"])) for name, wall in known.items()})

    def set(self, name: WallName, standing: bool, detail: str) -> None:
        """Report on one wall; a later report replaces an earlier one."""
        self._walls[name] = Wall(standing, detail)

    def to_dict(self) -> dict[str, dict[str, object]]:
        """``{name: {"standing": bool, "detail": str}}``, ready for JSON."""
        return {name: asdict(wall) for name, wall in self.items()}

    def demand(self, policy: ConfiningPolicy) -> None:
        """Raise WallMissingError unless every wall that the policy requires stands."""
        absent = Wall(False, "not reported")
        states = {name: self._walls.get(name, absent) for name in policy.walls.require}
        missing = {str(name): wall.detail for name, wall in states.items() if not wall.standing}
        if missing:
            raise WallMissingError(policy.name, missing)

    def __getitem__(self, name: str) -> Wall:
        return self._walls[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in WALL_NAMES if name in self._walls)

    def __len__(self) -> int:
        return len(self._walls)
