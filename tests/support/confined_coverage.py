"""Coverage of processes that confine themselves: they may write no file, and hand over what they have run instead.

How to measure is an argument of the program, and no variable: an environment with anything in it is a finding there.
"""

from __future__ import annotations

import json
import os
import posix
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

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
        import coverage

        os.environ[_CONFIG] = told
        coverage.process_startup(force=True)
    return [one for one in given if not one.startswith(_OPTION)]


def begin(hand_over: Callable[[str], object]) -> None:
    """Have this process and its forks give away what they have run, as a line, when they leave by `os._exit`."""
    if (running := _running()) is None:
        return
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:  # for programs that a fork starts
        del os.environ[name]
    running.config.data_file = "/proc/none"  # a fork looks whether its folder exists; nothing can be written there
    running.config.patch = ["fork"]

    def leave(status: int) -> NoReturn:
        if told := _measured():
            hand_over(f"{told}\n")
        posix._exit(status)

    os._exit = leave


def keep(told: str) -> None:
    """Write what another process has handed over."""
    if told and (running := _running()) is not None:
        from coverage import CoverageData

        data = CoverageData(running.config.data_file, suffix=True)
        data.add_arcs({name: [(begin, end) for begin, end in arcs] for name, arcs in json.loads(told)})
        data.write()


class _Told:
    """What coverage takes for its file: to open a real one, or to stop tracing, is more than these processes may do."""

    def __init__(self) -> None:
        self.line = ""

    def set_context(self, context: str | None) -> None:
        """There is only one context."""

    def add_arcs(self, arcs: Mapping[str, Collection[tuple[int, int]]]) -> None:
        """All that was run."""
        self.line = json.dumps([[name, list(pairs)] for name, pairs in arcs.items()])

    def add_file_tracers(self, tracers: Mapping[str, str]) -> None:
        """Only Python is measured."""


def _measured() -> str:
    told = _Told()
    if (running := _running()) is not None and running._collector is not None:
        running._collector.use_data(told, None)  # type: ignore[arg-type]
        running._collector.flush_data()
    return told.line


def _running() -> Coverage | None:
    coverage = sys.modules.get("coverage")
    running: Coverage | None = None if coverage is None else coverage.Coverage.current()
    return running
