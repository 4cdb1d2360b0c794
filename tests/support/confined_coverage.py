"""Coverage of processes that confine themselves: they may write no file, and hand over what they have run instead.

How to measure is an argument of the program, and no variable: an environment with anything in it is a finding there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coverage import Coverage

_CONFIG = "COVERAGE_PROCESS_CONFIG"
"""The variable by which coverage measures the programs that a test starts."""
_OPTION = "--measured-as="


def arguments(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The argument by which a program is measured that calls `start`; none if nothing is measured."""
    return [_OPTION + environment[_CONFIG]] if _CONFIG in environment else []


def start(given: Sequence[str]) -> list[str]:
    """Measure this process and its forks as an argument says; returns the others."""
    for told in (one.removeprefix(_OPTION) for one in given if one.startswith(_OPTION)):
        import sqlite3.dump  # noqa: F401  # used to hand over, where another user may not reach the installation

        import coverage

        os.environ[_CONFIG] = told
        coverage.process_startup(force=True)
    return [one for one in given if not one.startswith(_OPTION)]


def begin() -> None:
    """Keep what this process runs from now on in memory."""
    if (running := _running()) is not None and running._collector is not None:
        from coverage import CoverageData

        for name in [name for name in os.environ if name.startswith("COVERAGE_")]:  # for programs that a fork starts
            del os.environ[name]
        running._data = CoverageData(no_disk=True)
        running._collector.use_data(running._data, None)


def measured() -> str:
    """What this process has run since it began, to be handed over; nothing more is measured."""
    if (running := _running()) is None:
        return ""
    running.stop()
    return running.get_data().dumps().hex()


def keep(told: str) -> None:
    """Write what another process has handed over."""
    if told and (running := _running()) is not None:
        from coverage import CoverageData

        data = CoverageData(running.config.data_file, suffix=True)
        data.loads(bytes.fromhex(told))
        data.write()


def _running() -> Coverage | None:
    coverage = sys.modules.get("coverage")
    running: Coverage | None = None if coverage is None else coverage.Coverage.current()
    return running
