"""`make escapes`: try every case on both walls and print, by family, how many each wall holds.

Exits with 1 when a case escapes, when one whose control must succeed does not get out where no wall stands, or when a
session cannot begin one that does not say so.
Arguments name the families to try (default: all). With `--table` what a whole run measured
becomes, with what was measured on other Pythons, the table of SECURITY.md.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from escape_arena import USERS, Arena, Outcome, arena
from escape_corpus import Case, load
from escape_kernels import try_messages
from escape_table import keep

Trial = Callable[[Arena, Case], Outcome]
Column = dict[str, list[Outcome]]
"""Outcomes by family."""


def columns() -> dict[str, tuple[Callable[[Case], bool], Trial, bool]]:
    """What is tried: which cases, how, and whether getting out is what must happen."""
    table: dict[str, tuple[Callable[[Case], bool], Trial, bool]] = {
        "no wall": (Case.has_control, Arena.plain, True),
        "language": (lambda case: case.concerns("language"), Arena.language, False),
    }
    if sys.platform == "linux":
        for user in USERS:
            table[f"os ({user})"] = (
                lambda case: case.concerns("os"),
                lambda field, case, user=user: field.os(case, user),  # type: ignore[misc]
                False,
            )
    return table


def try_all(cases: list[Case]) -> dict[str, Column]:
    """Try the cases that run in one process: two arenas share the columns."""
    table = columns()

    def column(name: str) -> Column:
        wanted, trial, _ = table[name]
        found: Column = {}
        with arena(cases) as field:
            for case in filter(wanted, cases):
                found.setdefault(case.family, []).append(trial(field, case))
        return found

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(table, pool.map(column, table), strict=True))


@contextlib.contextmanager
def _own_folders() -> Iterator[None]:
    """Keep the kernels' sockets and state away from the user's own."""
    with tempfile.TemporaryDirectory(prefix="esc", dir="/tmp") as folder:
        names = ("RLM_KERNEL_RUNTIME_DIR", "RLM_KERNEL_STATE_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        for number, name in enumerate(names):
            os.environ[name] = f"{folder}/{number}"
            os.mkdir(os.environ[name], 0o700)
        yield


def show(families: Iterable[str], tried: dict[str, Column]) -> None:
    """Print the table."""
    print(f"{'family':20}" + "".join(f"{name:>16}" for name in tried))
    for family in families:
        cells = [_cell(name, outcomes.get(family, [])) for name, outcomes in tried.items()]
        print(f"{family:20}" + "".join(f"{cell:>16}" for cell in cells))
    totals = [_cell(name, [o for found in column.values() for o in found]) for name, column in tried.items()]
    print(f"{'total':20}" + "".join(f"{cell:>16}" for cell in totals))


def _cell(name: str, outcomes: list[Outcome]) -> str:
    good = sum(outcome.escaped == (name == "no wall") for outcome in outcomes)
    return f"{good}/{len(outcomes)}" if outcomes else "-"


def main(arguments: list[str]) -> int:
    """Try, print, and say whether all is as it must be."""
    wanted = [name for name in arguments if name != "--table"]
    if "--table" in arguments and wanted:
        print("the table is of a whole run: leave out the families", file=sys.stderr)
        return 2
    families = {name: cases for name, cases in load().items() if not wanted or name in wanted}
    cases = [case for found in families.values() for case in found]
    tried = try_all([case for case in cases if case.kind != "message"])
    with _own_folders():
        for name, column in try_messages([case for case in cases if case.kind == "message"]).items():
            tried.setdefault(name, {}).update(column)
    show(families, tried)
    wrong = {
        name: [outcome for found in column.values() for outcome in found if outcome.escaped != (name == "no wall")]
        for name, column in tried.items()
    }
    for name, outcomes in wrong.items():
        for outcome in outcomes:
            print(f"{'NOT PROVED' if name == 'no wall' else 'ESCAPED'} [{name}] {outcome}")
    untried = [o for found in tried["language"].values() for o in found if not o.tries_what_it_says()]
    for outcome in untried:
        print(f"NOT TRIED [language] {outcome}")
    python = ".".join(map(str, sys.version_info[:3]))
    print(f"{len(cases)} cases on Python {python}; `no wall` counts attacks that work, the others what was held")
    if "--table" in arguments:
        keep(families, tried)
    return int(bool(untried) or any(wrong.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
