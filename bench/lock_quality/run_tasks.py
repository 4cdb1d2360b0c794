"""How well maps name the files that are wanted; bench/README.md explains the tasks.

python bench/lock_quality/run_tasks.py --projects FOLDER [--tasks FILE] [--half held-out] [--systems "map,git grep"]
"""

from __future__ import annotations

import argparse
import posixpath
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from systems import SYSTEMS
from tasks import HALVES, Task, commit_tasks, half_of, listed_tasks, structure_tasks
from trees import indexed

from rlm_lock.map.text import estimated

TOKENS = 1_000


@dataclass(frozen=True)
class Mark:
    """What one map was worth.

    Attributes:
        top: the share of the wanted files among the first ten that it names.
        place: one divided by the place of the first wanted file.
        path: the share of the wanted files that it names at all.
    """

    top: float
    place: float
    path: float
    files: int
    seconds: float


def cut(text: str, tokens: int) -> str:
    """Return the first lines that fit."""
    kept, left = [], float(tokens)
    for line in text.splitlines(keepends=True):
        left -= estimated(line)
        if left < 0:
            break
        kept.append(line)
    return "".join(kept)


def named(text: str, known: frozenset[str]) -> list[str]:
    """Return the files that a map names, in order: whole paths, or names below a line that holds their folder."""
    found: dict[str, None] = {}
    folder = ""
    for line in text.splitlines():
        if line.endswith("/") and not line.startswith(" "):
            folder = line[:-1].strip("./")
            continue
        name = re.split(r":(?:\s|$)", line, maxsplit=1)[0].strip()
        path = name if name in known else posixpath.join(folder, name) if line.startswith(" ") else ""
        if path in known:
            found[path] = None
    return list(found)


def judged(task: Task, text: str, known: frozenset[str], seconds: float) -> Mark:
    """Return what a map is worth for a task."""
    order = named(text, known)
    places = [order.index(target) for target in task.targets if target in order]
    wanted = len(task.targets)
    top = sum(place < 10 for place in places) / wanted
    return Mark(top, 1 / (1 + min(places)) if places else 0.0, len(places) / wanted, len(order), seconds)


def tasks_of(options: argparse.Namespace, cache: Path) -> Iterator[Task]:
    """Return the tasks of all projects that are there."""
    if options.tasks:
        yield from listed_tasks(options.tasks, options.projects)
    for folder in sorted(options.projects.iterdir()):
        repository = folder / "repo" if (folder / "repo").is_dir() else folder
        yield from commit_tasks(repository, cache)
    for root in sorted(cache.iterdir()):
        if (root / ".git").exists():
            yield from structure_tasks(root)


def report(marks: dict[tuple[str, str], list[Mark]], kinds: Sequence[str], systems: Sequence[str]) -> None:
    """Print a table: a row a kind of task, a column a system."""
    print(f"{'kind':13}{'tasks':>6}  " + "  ".join(f"{name:^24}" for name in systems))
    print(" " * 21 + "  ".join(f"{'top10':>6}{'place':>7}{'path':>6}{'files':>5}" for _ in systems))
    for kind in kinds:
        cells = []
        for system in systems:
            rows = marks[system, kind]
            mean = [
                sum(values) / len(rows)
                for values in zip(*((m.top, m.place, m.path, m.files) for m in rows), strict=True)
            ]
            cells.append(f"{mean[0]:6.3f}{mean[1]:7.3f}{mean[2]:6.2f}{mean[3]:5.0f}")
        print(f"{kind:13}{len(marks[systems[0], kind]):6}  " + "  ".join(cells))


def main() -> None:
    """Make the tasks, ask every system, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=Path, required=True, help="a folder of git repositories")
    parser.add_argument("--tasks", type=Path, help="more tasks about these projects, a JSON object a line")
    parser.add_argument("--half", choices=[*HALVES, "all"], default="held-out")
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--cache", type=Path, help="where trees of old commits are kept for the next run")
    parser.add_argument(
        "--failures", action="store_true", help="print the tasks whose files the map does not name first"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = options.cache or Path(scratch)
        cache.mkdir(parents=True, exist_ok=True)
        tasks = [t for t in tasks_of(options, cache) if options.half == "all" or half_of(t) == options.half]
        if not tasks:
            sys.exit(f"no tasks: {options.projects} holds no repository with 400 commits, nor the projects of --tasks")
        measure(tasks, options.systems.split(","), failures=options.failures)


def measure(tasks: Sequence[Task], names: Sequence[str], *, failures: bool) -> None:
    """Ask each system for a map of every task."""
    marks: dict[tuple[str, str], list[Mark]] = defaultdict(list)
    missing: set[str] = set()
    for root in sorted({task.root for task in tasks}):
        tree = indexed(root)
        known = frozenset(tree.files)
        made = {name: SYSTEMS[name](tree) for name in names}
        for task in (t for t in tasks if t.root == root):
            group = "commits" if task.kind.startswith("commit") else "structure"
            for name, system in made.items():
                if system is None:
                    missing.add(name)
                    continue
                started = time.perf_counter()
                text = system(task, TOKENS)
                mark = judged(task, cut(text, TOKENS), known, time.perf_counter() - started)
                for kind in (task.kind, f"all {group}", f"in {root.name[:10]}"):
                    marks[name, kind].append(mark)
                if failures and name == "map" and mark.top < 1:
                    print(f"{task.id} {task.kind} {task.question!r} {task.focus} {task.targets} {mark.top:.2f}")
    systems = [name for name in names if name not in missing]
    kinds = sorted({kind for _, kind in marks}, key=lambda kind: (kind.startswith("in "), kind.startswith("all"), kind))
    report(marks, kinds, systems)
    if "aider" in missing:
        print("aider: not asked, because RLM_AIDER_PYTHON does not name a Python that has it")


if __name__ == "__main__":
    main()
