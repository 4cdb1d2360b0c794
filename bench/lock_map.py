"""What a map of a project costs: time to build, to load and to show, memory and disk, at 1,000 and 75,000 files.

The large tree is made of real sources (of the packages that are installed here), copied under other folders, with other
names in each copy. `git grep` of the same words runs beside it, in the same tree. Times of a map are CPU.

    python bench/lock_map.py [--files 1000 75000] [--tree FOLDER]
"""

from __future__ import annotations

import argparse
import functools
import gc
import os
import random
import re
import resource
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rlm_lock.extraction.packing import from_bytes, to_bytes
from rlm_lock.extraction.parse import extract
from rlm_lock.index.base import build
from rlm_lock.index.project import ProjectIndex
from rlm_lock.listing.history import MOST_COMMITS, Commit
from rlm_lock.map.past import Past
from rlm_lock.map.project import ProjectMap

SOURCES = (".py", ".pyi", ".js", ".ts", ".c", ".h", ".md", ".txt", ".json")
_LONGEST = 24_000
_NAME = re.compile(rb"\b[A-Za-z]+_[A-Za-z_]+\b|\b[A-Z][a-z]+[A-Z]\w+\b")
_PATH_WORDS = re.compile(r"[\W_]+")
MAPS = 60


def sources() -> list[tuple[str, bytes]]:
    """Return real sources, by path."""
    top = Path(sysconfig.get_paths()["purelib"])
    found = []
    for folder, _, names in os.walk(top):
        for name in names:
            path = Path(folder, name)
            if name.endswith(SOURCES) and 0 < path.stat().st_size <= _LONGEST:
                found.append((str(path.relative_to(top)), path.read_bytes()))
    return sorted(found)


def large_tree(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Return the files of a tree, in ascending order of their paths."""
    real = sources()
    chance = random.Random(1)
    chance.shuffle(real)
    copies = -(-count // len(real))
    files: list[tuple[bytes, int, int]] = []
    for copy in range(copies):
        for at, (path, _) in enumerate(real[: count - copy * len(real)]):
            files.append((f"part{copy:02}/{path}".encode() if copies > 1 else path.encode(), copy, at))
    for name, copy, at in sorted(files):
        data = real[at][1]
        yield name, _NAME.sub(rb"\g<0>_%02d" % copy, data) if copy else data


class Store:
    """Packed extracts in SQLite, as the scanner has them."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=OFF")
        self.db.execute("CREATE TABLE IF NOT EXISTS kept (path BLOB PRIMARY KEY, packed BLOB) WITHOUT ROWID")

    def get(self, path: bytes) -> bytes | None:
        """Return a file's packed extract."""
        row = self.db.execute("SELECT packed FROM kept WHERE path = ?", (path,)).fetchone()
        return row[0] if row else None

    def all(self) -> Iterator[tuple[bytes, str, bytes]]:
        """Return all, in the order of paths."""
        for path, packed in self.db.execute("SELECT path, packed FROM kept ORDER BY path"):
            yield path, "", packed


@dataclass(frozen=True)
class Asked:
    """Asks for a map, by the number of a question, and how many milliseconds it may take."""

    target: int
    ask: Callable[[int], object]


def cpu(work: Callable[[], object]) -> float:
    """Return the CPU seconds of some work."""
    started = time.process_time()
    work()
    return time.process_time() - started


def percentiles(values: list[float]) -> str:
    """Return the median and the worst of a hundred, in milliseconds."""
    values.sort()
    return f"{values[len(values) // 2] * 1000:6.1f} / {values[int(len(values) * 0.99)] * 1000:6.1f} ms"


def prepared(count: int, top: Path) -> None:
    """Write the files, a repository and the extracts."""
    tree = top / "tree"
    store = Store(top / "store.db")
    store.db.execute("BEGIN")
    started, size = time.process_time(), 0
    for path, data in large_tree(count):
        place = tree / os.fsdecode(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        packed = to_bytes(extract(os.fsdecode(path), data))
        size += len(packed)
        store.db.execute("INSERT INTO kept VALUES (?, ?)", (path, packed))
    store.db.execute("COMMIT")
    spent = time.process_time() - started
    rate = count / spent
    print(f"{count:7} files: {rate:.0f} a second to read, rename and parse; an extract has {size / count:.0f} bytes")
    subprocess.run(["git", "init", "--quiet", tree], check=True)
    subprocess.run(["git", "-C", tree, "add", "--all", "--force"], check=True)


def building(top: Path) -> None:
    """Build the index, in a process of its own whose memory is looked at."""
    spent = cpu(lambda: build(top, Store(top / "store.db").all()))
    print(f"        build {spent:6.1f} s CPU, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB at most")


def commits_of(index: ProjectIndex) -> Iterator[Commit]:
    """Return as many commits as are looked at, of files that lie beside each other, with words of their names."""
    chance = random.Random(3)
    for _ in range(MOST_COMMITS):
        first, count = chance.randrange(len(index) - 12), chance.randrange(1, 12)
        paths = tuple(map(index.path_of, range(first, first + count)))
        yield Commit(f"Fix {' '.join(_PATH_WORDS.split(os.fsdecode(paths[0]))[-4:])}", paths)


def showing(top: Path) -> None:
    """Show maps, in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    store = Store(top / "store.db")

    def imports_of(path: bytes) -> tuple[str, ...]:
        packed = store.get(path)
        return from_bytes(packed).imports if packed else ()

    started = time.process_time()
    index = ProjectIndex.open(top, imports_of)
    shown = ProjectMap(index, store.get)
    shown.past = Past(commits_of(index))
    shown.show(1_000)
    gc.collect()
    gc.freeze()  # as the scanner does
    print(f"        load and first map {(time.process_time() - started) * 1000:.0f} ms CPU")
    chance = random.Random(2)
    paths = [index.text_of(n) for n in chance.sample(list(index.numbers()), MAPS)]
    questions = [" ".join(_PATH_WORDS.split(path)[-4:-1]) for path in chance.sample(paths, MAPS)]
    asked: dict[str, Asked] = {
        "focus": Asked(5, lambda at: shown.show(1_500, focus=[paths[at]])),
        "words": Asked(10, lambda at: shown.show(1_500, about=f"where does the {questions[at]} handle a request")),
        "both": Asked(10, lambda at: shown.show(1_500, focus=[paths[at]], about=questions[at])),
    }
    for name, each in asked.items():
        for turn in ("first time", "again"):
            times = [cpu(functools.partial(each.ask, at)) for at in range(MAPS)]
            print(f"        map by {name:6} {turn:10} {percentiles(times)} CPU, target {each.target} ms")
    walls = []
    for question in questions[:10]:
        begun = time.perf_counter()
        for word in question.split():
            subprocess.run(["git", "-C", top / "tree", "grep", "-liwF", "-e", word], capture_output=True, check=False)
        walls.append(time.perf_counter() - begun)
    print(f"        git grep of the words {percentiles(walls)} elapsed")
    text = next(iter(paths)).encode()
    packed = store.get(text)
    spent = cpu(lambda: index.update(text, "new", from_bytes(packed) if packed else None))
    neighbours = cpu(lambda: index.importers_of(index.number_of(text) or 0))
    print(f"        one edited file: {(spent + neighbours) * 1000:.1f} ms CPU until its neighbours are right")
    size = (top / "index").stat().st_size
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"        index {size / len(index):.0f} bytes a file, {grown // 1024} MB more in memory (mapped pages counted)"
    )


def main() -> None:
    """Measure each size; building and showing run in processes of their own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 75_000])
    parser.add_argument("--tree", type=Path, help="a folder where the trees are kept for the next run")
    parser.add_argument("--step", choices=["build", "show"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        (building if options.step == "build" else showing)(options.tree)
        return
    with tempfile.TemporaryDirectory() as scratch:
        for count in options.files:
            top = (options.tree or Path(scratch)) / str(count)
            if not (top / "tree" / ".git").exists():
                top.mkdir(parents=True, exist_ok=True)
                prepared(count, top)
            print(f"{count:7} files", flush=True)
            for step in ("build", "show"):
                subprocess.run([sys.executable, __file__, "--step", step, "--tree", top], check=True)


if __name__ == "__main__":
    main()
