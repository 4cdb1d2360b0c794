"""Measure what a part's own tests run of its lines and branches, in forked processes too, and hold it against a floor.

``make cover`` runs it for all parts, ``make cover PART=ipc`` for one. A floor only rises: where the tests reach a
whole percent more, the number here is raised with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COVERAGE = str(Path(sys.executable).with_name("coverage"))


@dataclass(frozen=True)
class Part:
    """A package, the tests that are its own, and the percent of its lines and branches that they run at the least."""

    package: str
    tests: tuple[str, ...]
    floor: int
    threads: bool = True
    """Whether threads are measured: the language wall refuses their tracer, they die, and their test waits."""


PARTS = {
    "ipc": Part("rlm_ipc", ("tests/ipc",), 66),
    "memory": Part("rlm_memory", ("tests/memory",), 94),
    "sandbox": Part("rlm_sandbox", ("tests/sandbox",), 96, threads=False),
}


def measured(part: Part, options: list[str]) -> float:
    """The percent that the tests of a part run.  Raises: CalledProcessError when one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o1777)  # processes that have become another user write there, too
        environment = {**os.environ, "COVERAGE_FILE": f"{folder}/.coverage"}

        def coverage(*arguments: str) -> None:
            subprocess.run([COVERAGE, *arguments], cwd=ROOT, env=environment, check=True)

        how = () if part.threads else ("--concurrency=multiprocessing",)
        coverage("run", *how, "-m", "pytest", "-q", "--dist", "loadfile", *options, *part.tests)
        coverage("combine", "-q")
        coverage("report", "--include", f"*/{part.package}/*")
        coverage("json", "-q", "--include", f"*/{part.package}/*", "-o", f"{folder}/told.json")
        told = json.loads(Path(folder, "told.json").read_text())
    return float(told["totals"]["percent_covered"])


def main(names: list[str], options: list[str]) -> int:
    """Measure these parts, all when none is named; whether one is below its floor."""
    too_low = []
    for name in names or PARTS:
        part = PARTS[name]
        reached = measured(part, options)
        print(f"{name}: {reached:.1f} % of lines and branches; its floor is {part.floor} %")
        if reached < part.floor:
            too_low.append(name)
        elif reached >= part.floor + 1:
            print(f"raise the floor of {name} in {__file__} to {int(reached)}")
    if too_low:
        print(f"below the floor: {', '.join(too_low)}; test what you have added")
    return int(bool(too_low))


if __name__ == "__main__":
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    sys.exit(main(words[:split], words[split + 1 :]))
