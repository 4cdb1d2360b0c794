"""Contexts against the machine: load against copy, scan against grep, content and lines against plain ones.

    python bench/contexts.py [--mb 100] [--file PATH] [--json]

Everything is measured on one generated log, or a file of yours, in one run. Searches are compared
by the processor time they use; for the programs that includes the start of a process. At the end stand
the targets, and whether they are met; those against ripgrep need `rg` (the package `ripgrep`).
"""

import json
import math
import multiprocessing
import os
import random
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ratio import Case, compare

from rlm_kernel.contexts.scan import scan
from rlm_kernel.contexts.store import ContextStore
from rlm_kernel.contexts.variable import ContextVariable, attach

PATTERNS = {
    "literal, frequent": "error",
    "literal, rare": "deadlock detected",
    "literal, absent": "zebra crossing",
    "alternation, rare": "deadlock|out of memory",
    "alternation, absent": "segfault|kernel panic|core dumped",
    "class, frequent": "took [0-9]{4,} ms",
    "class, absent": "[0-9]{9,} ms",
    "word, frequent": r"\berror\b",
    "anchored, absent": "^fatal",
}
WORDS = "request session user cache index page query table worker lock buffer stream socket retry commit".split()
CONTENT_IDIOMS: dict[str, Callable[[Any], object]] = {
    "re.findall": lambda s: len(re.findall(r"ERROR \S+", s)),
    "count": lambda s: s.count("ERROR"),
    "find": lambda s: s.find("zebra crossing"),
    "splitlines": lambda s: len(s.splitlines()),
    "slice": lambda s: len(s[1000:-1000]),
    "in": lambda s: "zebra crossing" in s,
    "replace": lambda s: len(s.replace("ERROR", "error")),
    "encode": lambda s: len(s.encode()),
}
LINE_IDIOMS: dict[str, Callable[[Any], object]] = {
    "[l for l if in]": lambda x: len([line for line in x if "ERROR" in line]),
    "Counter(split)": lambda x: Counter(line.split(" ", 4)[3] for line in x),
    "enumerate if": lambda x: [at for at, line in enumerate(x) if "deadlock" in line],
    "sum(len)": lambda x: sum(len(line) for line in x),
    "x[i] in range": lambda x: sum("ERROR" in x[at] for at in range(100_000)),
    "x[:1000]": lambda x: ["ERROR" in line for at in range(50) for line in x[at * 1000 : at * 1000 + 1000]],
    "join": lambda x: len("\n".join(x)),
    "re.search": lambda x: sum(1 for line in x if re.search(r"took \d{4}", line)),
    "x[i] scattered": lambda x: sum(len(x[at * 7919 % len(x)]) for at in range(100_000)),
}


@dataclass(frozen=True)
class Target:
    """What the project promises: `value` is not above `most`; None: it could not be measured."""

    name: str
    value: float | None
    most: float


TARGETS: list[Target] = []
"""Filled while measuring, printed at the end."""


def main() -> None:
    """Measure everything."""
    with tempfile.TemporaryDirectory(dir=_option("--dir", None)) as folder:
        given = _option("--file", None)
        source = Path(given) if given else write_log(Path(folder) / "bench.log", int(_option("--mb", "100") or 0) << 20)
        store = ContextStore(Path(folder) / "store")
        _loading(store, source, Path(folder))
        stored = store.put_path(source)
        with store.attachment(stored) as attachment:
            log = attach([os.dup(fd) for fd in attachment.fds], attachment.header)
        _opening(store, stored.digest, log)
        _sharing(store, stored.digest)
        _searching(log, source)
        _idioms(log)
        _print_targets(stored.size)


def _print_targets(size: int) -> None:
    print(f"\ntargets, on {size / 2**20:,.0f} MiB" + ("" if shutil.which("rg") else "; ripgrep (rg) is missing"))
    for target in TARGETS:
        value = target.value
        verdict = "not measured" if value is None else "met" if value <= target.most else "NOT MET"
        shown = "" if value is None else f"{value:.2f}"
        print(f"  {target.name:56} {shown:>8} {f'<= {target.most:g}':>8}  {verdict}")


def write_log(path: Path, size: int) -> Path:
    """A log of about `size` bytes: what a service writes, with rare troubles in it."""
    rng = random.Random(20260301)
    levels = ["INFO"] * 20 + ["DEBUG"] * 6 + ["WARN"] * 2 + ["ERROR"]
    written, number = 0, 0
    with path.open("w") as file:
        while written < size:
            lines = [_line(rng, levels, at) for at in range(number, number + 1000)]
            written += file.write("".join(lines))
            number += 1000
    return path


def _line(rng: random.Random, levels: list[str], number: int) -> str:
    clock = f"{number % 24:02}:{number % 60:02}:{number * 7 % 60:02}.{number % 1000:03}"
    what = " ".join(rng.choices(WORDS, k=rng.randrange(3, 9)))
    if rng.random() < 0.00002:
        what = "deadlock detected between transactions"
    where = f"[worker-{number % 16}] {rng.choice(levels)} com.example.{rng.choice(WORDS)}"
    spent = f"took {int(rng.expovariate(0.01))} ms from 10.{number % 256}.{number % 97}.7"
    return f"2026-03-{number % 28 + 1:02} {clock} {where}: {what} id={rng.getrandbits(48):012x} {spent}\n"


def _option(name: str, default: str | None) -> str | None:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


def _loading(store: ContextStore, source: Path, folder: Path) -> None:
    def copy() -> float:
        started = time.perf_counter()
        shutil.copyfile(source, folder / "copy")
        elapsed = time.perf_counter() - started
        (folder / "copy").unlink()
        return elapsed

    def load() -> float:
        started = time.perf_counter()
        store.put_path(source)
        elapsed = time.perf_counter() - started
        store.collect(0)
        return elapsed

    copied, loaded = compare("load by path", [Case("file copy", copy), Case("put_path", load)], rounds=9)
    TARGETS.append(Target("load by path, of a file copy", loaded.median / copied.median, 2.5))


def _opening(store: ContextStore, digest: str, log: ContextVariable) -> None:
    stored = store.get(digest)

    def attach_once() -> None:
        attachment = store.attachment(stored)
        attach(attachment.fds, attachment.header)

    middle = log["line_count"] // 2
    attached, peeked, _ = compare(
        "reading",
        [
            Case("attach (host and kernel)", attach_once),
            Case("peek of 2,000 lines", lambda: void(log.text.peek(middle, 2000))),
            Case("2,000 lines from lines", lambda: void(log["lines"][middle : middle + 2000])),
        ],
        rounds=50,
    )
    TARGETS.append(Target("attach, ms", attached.median * 1000, 5))
    TARGETS.append(Target("peek of 2,000 lines, ms", peeked.median * 1000, 1))


def void(_: object) -> None:
    """Drop a result."""


def _searching(log: ContextVariable, source: Path) -> None:
    grep = ["grep", "-i", "-m50", "-n", "-E", "-e"]
    ripgrep = ["rg", "-i", "-m50", "-n", "--no-config", "-j1", "-e"]
    for name, pattern in PATTERNS.items():
        programs = [Case("grep -m50", _program([*grep, pattern, str(source)]))]
        if shutil.which("rg"):
            programs.append(Case("rg -m50", _program([*ripgrep, pattern, str(source)])))
        ours = Case("scan", _own_time(partial(scan, log, pattern, seconds=60)))
        results = compare(f"first 50 of {name}: {pattern}", [*programs, ours], rounds=5)
        ratio = results[2].median / results[1].median if shutil.which("rg") else None
        TARGETS.append(Target(f"first 50 of {name}, of ripgrep", ratio, 1.0))
    counts: list[float] = []
    if shutil.which("rg"):
        for name, pattern in PATTERNS.items():
            count = Case("rg -c", _program(["rg", "-i", "-c", "--no-config", "-j1", "-e", pattern, str(source)]))
            ours = Case(
                "scan, counting",
                _own_time(partial(scan, log, pattern, seconds=60, count_seconds=60)),
            )
            theirs, own = compare(f"count of {name}: {pattern}", [count, ours], rounds=3)
            counts.append(own.median / theirs.median)
    mean = math.exp(statistics.fmean(map(math.log, counts))) if counts else None
    TARGETS.append(Target("full counts, of ripgrep, geometric mean", mean, 2.0))


def _sharing(store: ContextStore, digest: str) -> None:
    """Memory of eight forked processes that hold the same text, beyond that of eight that do not."""
    stored = store.get(digest)

    def holding() -> object:
        attachment = store.attachment(stored)
        log = attach(attachment.fds, attachment.header)
        return log, log["content"].count("ERROR")

    ratio = None
    if Path("/proc/self/smaps_rollup").exists():
        ratio = (_proportional_bytes(holding) - _proportional_bytes(lambda: None)) / stored.size
    TARGETS.append(Target("8 sessions with the same text, of one copy", ratio, 1.3))


def _proportional_bytes(hold: Callable[[], object]) -> int:
    """Sum over eight processes of their share of memory, taken when all of them hold it."""
    context = multiprocessing.get_context("fork")
    ready, total = context.Barrier(8), context.Value("q", 0)

    def run() -> None:
        held = hold()
        ready.wait()
        share = re.search(r"^Pss: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.MULTILINE)
        with total.get_lock():
            total.value += int(share[1]) * 1024 if share else 0
        ready.wait()
        void(held)

    processes = [context.Process(target=run) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return int(total.value)


def _program(command: list[str]) -> Callable[[], float]:
    """Processor time of a command whose output is read."""

    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.PIPE, check=False, env={**os.environ, "LC_ALL": "C"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def _own_time(action: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        started = time.process_time()
        action()
        return time.process_time() - started

    return run


def _idioms(log: ContextVariable) -> None:
    content = (log["content"] + " ")[:-1]
    lines = list(log["lines"])
    for name, idiom in CONTENT_IDIOMS.items():
        TARGETS.append(Target(f"content: {name}", _pair(f"content: {name}", idiom, content, log["content"]), 1.15))
    for name, each in LINE_IDIOMS.items():
        TARGETS.append(Target(f"lines: {name}", _pair(f"lines: {name}", each, lines, log["lines"]), 2.5))


def _pair(name: str, idiom: Callable[[Any], object], plain: object, ours: object) -> float:
    if json.dumps(idiom(plain), default=str) != json.dumps(idiom(ours), default=str):
        raise AssertionError(f"{name}: not the same result")
    baseline, shared = compare(
        name,
        [Case("plain", lambda: void(idiom(plain))), Case("context", lambda: void(idiom(ours)))],
        rounds=5,
    )
    return shared.median / baseline.median


if __name__ == "__main__":
    main()
