"""What a corpus is made of, and what running one of its cases shows."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def folder_of(package: str) -> Path:
    """Where an installed package lies."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {package}: see bench/compat/requirements.txt", name=package)
    return Path(found.submodule_search_locations[0])


@dataclass(frozen=True)
class Case:
    """Cells that share one namespace, run in order; an exception ends a cell, not the case.

    ``tests`` is unittest source that calls what the cells define. It is compiled plainly in both runs: it stands
    for the reader of the results, who is outside the session.
    """

    name: str
    cells: tuple[str, ...]
    mode: str = "exec"
    """``exec``, or ``single`` for examples whose values are shown."""
    tests: str = ""
    setup: int = 0
    """This many cells at the start are the runner's own (imports that a documentation page takes for granted)."""


@dataclass(frozen=True)
class Corpus:
    """One corpus: the package that ships it, the policy it runs under, and how its cases are read."""

    name: str
    package: str
    """The name on PyPI; empty when it comes with Python."""
    policy: str
    read: Callable[[], Iterator[Case]]
    preload: tuple[str, ...] = ()
    """Modules to import once, before the cases fork off."""
    module: str = ""
    """What to look for to see whether it is there; a path when it has a ``/``."""

    on_request: bool = False
    """Run only when it is named: it takes longer than all others together."""

    def missing(self) -> str:
        """What to do when the corpus is not there; empty when it is."""
        if not self.module:
            return ""
        if "/" in self.module:
            return "" if Path(self.module).is_file() else f"no file {self.module}: {self.package}"
        if importlib.util.find_spec(self.module) is not None:
            return ""
        return f"install the PyPI package {self.package!r} (pinned in bench/compat/requirements.txt)"


@dataclass
class Step:
    """What one cell, or one test, showed."""

    output: str = ""
    error: str = ""
    """Name of the exception's type as plain Python knows it; empty when there was none."""
    detail: str = ""
    """Type and message as raised; not compared."""
    refusal: str = ""
    """Which rule of the sandbox said no, anywhere in the chain of causes: see ``verdict.RULES``."""


@dataclass
class Outcome:
    """What one case showed."""

    name: str
    steps: list[Step] = field(default_factory=list)
    fate: str = "ran"
    """``ran``, ``timeout`` or ``died``."""

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """The outcome that a worker wrote."""
        return cls(data["name"], [Step(**step) for step in data["steps"]], data["fate"])
