"""The scanner of the project lock: first and second scan, one edited file, memory, and what the store takes.

``--files N`` makes a project of so many Python files (50,000); ``--parse`` also has all of them parsed and indexed,
which takes minutes. The second scan stands beside `git status` and `git ls-files -o` on the same project, in turns.
"""

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from lock_scanner import RunningScanner
from ratio import timed

from rlm_lock.protocol import ReadSection, Refresh, Section
from rlm_lock.scanner.project import Project
from rlm_lock.store import Store

ROUNDS = 9
LISTING = ["git", "ls-files", "-o", "--exclude-standard"]


def path_of(number: int, count: int) -> str:
    """Return the path of a file of a project of so many."""
    return f"package{number % 50}/part{number // 50 % (count // 1000 or 1)}/f{number}.py"


def make_project(root: Path, count: int) -> None:
    """Write files that are like those of a project: some lines each, in folders of twenty."""
    lines = Path(argparse.__file__).read_text(encoding="utf-8").splitlines()
    chance = random.Random(28)
    for number in range(count):
        file = root / path_of(number, count)
        file.parent.mkdir(parents=True, exist_ok=True)
        start = chance.randrange(len(lines) - 80)
        body = "\n".join(lines[start : start + chance.randrange(10, 80)])
        text = f"import os\n\n\ndef f{number}():\n    return {number}\n\n\n{body}\n"
        file.write_text(text, encoding="utf-8")
    for words in (
        ("init", "-q"),
        ("add", "-A"),
        ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "one"),
    ):
        subprocess.run(["git", *words], cwd=root, check=True)


def look(project: Project) -> None:
    """Bring the table of files to what is on disk."""
    for _ in project.look():
        pass


def show(what: str, seconds: list[float]) -> None:
    """Print the median and the quickest of some times."""
    print(f"{what:<52}{statistics.median(seconds):8.3f} s median{min(seconds):8.3f} s best")


def measure(root: Path, store: Path, count: int) -> None:
    """Measure what the process itself does."""
    with Store(store, os.fsencode(root)) as kept:
        project = Project(os.fsencode(root), kept)
        show(f"first look at {count:,} files, all hashed", [timed(lambda: look(project))])
        scans, status, listing, edits = [], [], [], []
        look(project)
        before = time.process_time()
        for _ in range(ROUNDS):
            scans.append(timed(lambda: look(project)))
            status.append(timed(lambda: subprocess.run(["git", "status", "--short"], cwd=root, check=True)))
            listing.append(timed(lambda: subprocess.run(LISTING, cwd=root, check=True)))
        cpu = (time.process_time() - before) / ROUNDS
        for number in range(ROUNDS):
            (root / "package0" / "part0" / "f0.py").write_text(f"def edited{number}(): ...\n", encoding="utf-8")
            edits.append(timed(lambda: look(project)))
        show("second look, nothing has changed", scans)
        print(f"{'  of it processor time, without git':<52}{cpu:8.3f} s")
        show("git status", status)
        show("git ls-files -o --exclude-standard", listing)
        show("one edited file: a new version", edits)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{'memory of this process at its most':<52}{peak:8.0f} MB")


def measure_process(root: Path, store: Path, count: int) -> None:
    """Measure a scanner process from its start until everything is parsed and indexed."""
    with RunningScanner(root, store) as scanner:
        began = time.perf_counter()
        scanner.ask(Refresh(4.0, is_first=True))
        for section in (Section.PROJECT, Section.RULES):
            scanner.ask(ReadSection(section))
        print(f"{'structure, manifests and rules usable':<52}{time.perf_counter() - began:8.3f} s")
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        scanner.finish()
        wall = time.perf_counter() - began
        peak = Path(f"/proc/{scanner.process.pid}/status").read_text(encoding="ascii").partition("VmHWM:")[2].split()[0]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = ended.ru_utime + ended.ru_stime - children.ru_utime - children.ru_stime
    size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    print(f"{'first scan, parsed and indexed':<52}{wall:8.1f} s{count / wall:8.0f} files/s")
    print(f"{'  processor time of all its processes':<52}{cpu:8.1f} s{count / cpu:8.0f} files/s a core")
    print(f"{'memory of the scanner at its most':<52}{int(peak) / 1024:8.0f} MB")
    print(f"{'store, index included':<52}{size / count:8.0f} bytes a file")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--parse", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        root.mkdir()
        make_project(root, options.files)
        print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
        measure(root, Path(folder) / "store", options.files)
        if options.parse:
            measure_process(root, Path(folder) / "parsed", options.files)


if __name__ == "__main__":
    main()
