"""What magics do when their cell runs. They print, and look at the session's objects without running their code."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from IPython.core.magics.execution import TimeitResult, _format_time
from IPython.display import HTML

from rlm_kernel.worker import variables
from rlm_kernel.worker.displays import Markdown, display
from rlm_kernel.worker.introspection import helping, inspection, tables
from rlm_kernel.worker.introspection.expressions import Scope
from rlm_kernel.worker.magics.rewriting import OFFERED
from rlm_kernel.worker.traceback import name_of
from rlm_sandbox.language_wall.wall import leave

LONG_ENOUGH: Final = 0.2
"""Minimum duration of a ``%timeit`` measurement in seconds, if it chooses the number of loops itself."""
WIDEST: Final = 80
USAGE: Final = """\
This session runs Python under a policy. Ask it:

x?            what x is: its type, signature and documentation; help(x) also lists members
x??           the same with its source
Tab           completes names, attributes, keys, columns, arguments, files and modules
Shift-Tab     shows the signature of the call around the cursor
%whos         lists the variables and the loaded texts
%lsmagic      lists the magics that work here; any other says what to do instead

In a terminal `rlm-kernel policy show NAME` says what a policy allows."""

Inner = Callable[[Iterator[None], Callable[[], float]], float]


class Actions:
    """The functions behind a session's magics."""

    def __init__(
        self,
        namespace: Mapping[str, Any],
        hidden: Mapping[str, Any],
        scope: Callable[[], Scope],
        show_figures_as: Callable[[str], None],
    ) -> None:
        self._namespace, self._hidden, self._scope = namespace, hidden, scope
        self._show_figures_as = show_figures_as
        self._begun: list[tuple[float, float]] = []

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by the names that the rewritten cells call."""
        return {
            "%clock": self._clock,
            "%time": self._time,
            "%timeit": self._timeit,
            "%who": self._who,
            "%whos": self._whos,
            "%who_ls": self._who_ls,
            "%pinfo": self._details,
            "%pwd": os.getcwd,
            "%show": _show,
            "%leave": _leave,
            "%figures": self._show_figures_as,
            "%lsmagic": lambda: print(" ".join(OFFERED)),  # noqa: T201
            "%quickref": lambda: print(USAGE),  # noqa: T201
        }

    # -- time

    def _clock(self) -> None:
        self._begun.append((time.perf_counter(), time.process_time()))

    def _time(self, _begun: None = None, value: Any = None) -> Any:
        wall, processor = time.perf_counter(), time.process_time()
        if self._begun:
            wall, processor = wall - self._begun[-1][0], processor - self._begun.pop()[1]
            print(f"CPU time: {_format_time(processor)}\nWall time: {_format_time(wall)}")  # noqa: T201
        return value

    def forget(self) -> None:
        """Forget measurements that an error has interrupted."""
        self._begun.clear()

    def _timeit(
        self, loops: int, repeat: int, precision: int, quiet: bool, output: bool, *_: bool
    ) -> Callable[[Inner], TimeitResult | None]:
        def measured(inner: Inner) -> TimeitResult | None:
            count = loops or _enough(inner)
            runs = [_once(inner, count) for _ in range(repeat)]
            best, worst = min(runs) / count, max(runs) / count
            result = TimeitResult(count, repeat, best, worst, runs, 0.0, precision)
            if not quiet:
                print(result)  # noqa: T201
            return result if output else None

        return measured

    # -- names

    def _rows(self, kinds: tuple[str, ...]) -> list[tuple[str, str, str]]:
        found = []
        for name, value in variables.visible(self._namespace, self._hidden):
            kind = name_of(type(value))
            if not kinds or kind in kinds:
                shown = tables.shape(value) or variables.plain_repr(value)
                found.append((name, kind, shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 3]}..."))
        return sorted(found)

    def _who(self, *kinds: str) -> None:
        names = [name for name, _, _ in self._rows(kinds)]
        print("\t".join(names) or "The session has no variables of its own.")  # noqa: T201

    def _who_ls(self, *kinds: str) -> list[str]:
        return [name for name, _, _ in self._rows(kinds)]

    def _whos(self, *kinds: str) -> None:
        rows = [("Variable", "Type", "Value"), *self._rows(kinds)]
        if len(rows) == 1:
            self._who(*kinds)
            return
        wide = [max(len(row[at]) for row in rows) + 2 for at in range(2)]
        rows.insert(1, ("-" * (wide[0] - 2), "-" * (wide[1] - 2), "-----"))
        print("\n".join(f"{name:<{wide[0]}}{kind:<{wide[1]}}{shown}" for name, kind, shown in rows))  # noqa: T201

    def help(self, *objects: Any) -> None:
        """``help(x)``: without an object it tells what there is to ask."""
        for value in objects:
            print(helping.helped(self._scope(), value))  # noqa: T201
        if not objects:
            print(USAGE)  # noqa: T201

    def _details(self, expression: str, source: bool) -> None:
        if (found := self._scope().text(expression)) is None:
            print(f"Object `{expression}` not found.")  # noqa: T201
        else:
            print(inspection.describe(expression, found, source=source))  # noqa: T201


def _show(form: str, text: str) -> None:
    display({"HTML": HTML, "Markdown": Markdown}[form](text))


def _leave(value: Any) -> Any:
    """Let ``exit`` alone end the cell, unless code has a variable with that name."""
    return value() if value is leave else value


def _enough(inner: Inner) -> int:
    count, steps = 1, itertools.cycle((2, 2.5, 2))
    while _once(inner, count) < LONG_ENOUGH:
        count = int(count * next(steps))  # 1, 2, 5, 10, 20, 50
    return count


def _once(inner: Inner, count: int) -> float:
    collects = gc.isenabled()
    gc.disable()
    try:
        return inner(itertools.repeat(None, count), time.perf_counter)
    finally:
        if collects:
            gc.enable()
