"""Contexts against the machine: load against copy, scan against grep, content and lines against plain ones.

    python bench/contexts.py [--mb 100] [--file PATH] [--dir FOLDER] [--rounds N] [--json]

Everything is measured on one generated log, or a file of yours, in one run; what is compared with a target is the
median, over the rounds, of the ratio within a round. Searches and idioms are compared by the processor time they
use; for the programs that includes the start of a process. Neither a load nor the copy it is compared with waits for
the disk. At the end stand the targets, and whether they are met; those against ripgrep need `rg` (the package
`ripgrep`).
"""

import json
import math
import mmap
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from apart import end
from memory import SETTLED_SECONDS, megabytes, ours
from ratio import Case, Result, timed
from ratio import compare as compare_in_rounds

from rlm_client import Client
from rlm_contexts.helpers.job import Job, JobLimits, messages
from rlm_contexts.helpers.protocol import RunSql, SqlTable
from rlm_contexts.search.scan import scan
from rlm_contexts.store.store import ContextStore
from rlm_contexts.view.variable import ContextVariable, attach
from rlm_kernel.supervisor.processes.zygote_start import LARGE_COPIES

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
    "x[i] in range": lambda x: sum("ERROR" in x[at] for at in range(min(100_000, len(x)))),
    "[x[i] for i]": lambda x: len([x[at] for at in range(len(x))]),
    "x[:1000]": lambda x: ["ERROR" in line for at in range(50) for line in x[at * 1000 : at * 1000 + 1000]],
    "join": lambda x: len("\n".join(x)),
    "re.search": lambda x: sum(1 for line in x if re.search(r"took \d{4}", line)),
    "x[i] scattered": lambda x: sum(len(x[at * 7919 % len(x)]) for at in range(100_000)),
    "in": lambda x: "no such line" in x,
    "index": lambda x: x.index(x[-1]),
    "reversed": lambda x: sum("deadlock" in line for line in reversed(x)),
    "sorted": lambda x: len(sorted(x, key=len)),
    "zip": lambda x: sum(line < number for line, number in zip(x, map(str, range(100_000)), strict=False)),
}
HOLD_ALL = ("[x[i] for i]", "join", "sorted")
"""Idioms that hold the strings of all lines at a time."""
CSV_ROWS = 900_000
SQL = "SELECT shop, sum(amount), min(day) FROM sales GROUP BY shop ORDER BY shop"
DUCKDB = """
import os, sys, duckdb
path, memory, sql = sys.argv[1:]
sales = duckdb.connect(config={"threads": min(4, os.cpu_count() or 1), "memory_limit": f"{int(memory) * 7 // 10}B"})
sales.execute(f"CREATE VIEW sales AS FROM '{path}'")
print(sales.execute(sql).fetchall())
"""
"""What a program does without us, with as many threads and as much memory; only the first lines decide on types."""
SESSIONS = 8
POLICY = "extends: default\nfiles: {{read: {folders}}}\nlimits: {{content_bytes: 100 GiB, cell_seconds: 600}}\n"
USE = "log['content'].count('ERROR') + sum(len(line) for line in log['lines'])"


@dataclass(frozen=True)
class Target:
    """What the project promises: `value` is not above `most`; None: it could not be measured."""

    name: str
    value: float | None
    most: float


TARGETS: list[Target] = []
"""Filled while measuring, printed at the end."""


def main() -> None:
    """Measure everything, with the C library as it is in kernels."""
    if not os.environ.items() >= LARGE_COPIES.items():
        os.execve(sys.executable, sys.orig_argv, os.environ | LARGE_COPIES)
    with tempfile.TemporaryDirectory(dir=_option("--dir", None)) as folder:
        given = _option("--file", None)
        os.environ |= {"RLM_KERNEL_RUNTIME_DIR": f"{folder}/r", "RLM_KERNEL_STATE_DIR": f"{folder}/s"}
        source = Path(given) if given else write_log(Path(folder) / "bench.log", int(_option("--mb", "100") or 0) << 20)
        store = ContextStore(Path(folder) / "store")
        _loading(store, source, Path(folder))
        stored = store.put_path(source)
        with store.shared_text(stored) as shared_text:
            log = attach([os.dup(fd) for fd in shared_text.fds], shared_text.header)
        _opening(store, stored.digest, log)
        _searching(log, source)
        _idioms(log)
        _querying(Path(folder) / "sales.csv")
        _sharing(source, Path(folder) / "s")
        _print_targets(stored.size)


def compare(benchmark: str, cases: Sequence[Case], *, rounds: int) -> list[Result]:
    """Compare in so many rounds, or as many as the command line says."""
    return compare_in_rounds(benchmark, cases, rounds=int(_option("--rounds", None) or rounds))


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
        elapsed = timed(lambda: shutil.copyfile(source, folder / "copy"))
        (folder / "copy").unlink()
        return elapsed

    def load() -> float:
        elapsed = timed(lambda: store.put_path(source))
        store.collect(0)
        return elapsed

    _, loaded = compare("load by path", [Case("file copy", copy), Case("put_path", load)], rounds=15)
    TARGETS.append(Target("load by path, of a file copy", loaded.cost, 2.5))


def _opening(store: ContextStore, digest: str, log: ContextVariable) -> None:
    stored = store.get(digest)

    def attach_once() -> None:
        shared_text = store.shared_text(stored)
        attach(shared_text.fds, shared_text.header)

    middle = log["line_count"] // 2
    attached, peeked, _ = compare(
        "reading",
        [
            Case("attach (supervisor and worker)", attach_once),
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
            programs.insert(0, Case("rg -m50", _program([*ripgrep, pattern, str(source)])))
        searched = Case("scan", _own_time(partial(scan, log, pattern, seconds=60)))
        results = compare(f"first 50 of {name}: {pattern}", [*programs, searched], rounds=7)
        cost = results[-1].cost if shutil.which("rg") else None
        TARGETS.append(Target(f"first 50 of {name}, of ripgrep", cost, 1.0))
    counts: list[float] = []
    if shutil.which("rg"):
        for name, pattern in PATTERNS.items():
            count = Case("rg -c", _program(["rg", "-i", "-c", "--no-config", "-j1", "-e", pattern, str(source)]))
            counted = Case("scan, counting", _own_time(partial(scan, log, pattern, seconds=60, count_seconds=60)))
            counts.append(compare(f"count of {name}: {pattern}", [count, counted], rounds=5)[-1].cost)
    mean = math.exp(statistics.fmean(map(math.log, counts))) if counts else None
    TARGETS.append(Target("full counts, of ripgrep, geometric mean", mean, 2.0))


def _querying(path: Path) -> None:
    """SQL over a CSV file, against DuckDB in a process of its own."""
    rng = random.Random(20260302)
    with path.open("w") as file:
        file.write("id,day,shop,amount,comment\n")
        for number in range(CSV_ROWS):
            day = f"2026-{number % 12 + 1:02}-{number % 28 + 1:02}"
            file.write(f'{number},{day},shop {number % 5},{rng.random() * 1000:.2f},"order {number}, {day}"\n')
    memory = 1 << 30
    limits = JobLimits(seconds=600, memory=memory, answer=1 << 20)
    job = Job(RunSql(SQL, (SqlTable("sales", str(path), "csv", path.stat().st_size),)), [path])
    plain = _program([sys.executable, "-c", DUCKDB, str(path), str(memory), SQL])
    cases = [Case("duckdb", plain), Case("query", _of_children(lambda: list(messages(job, limits))))]
    compare(f"SQL over a CSV file of {CSV_ROWS:,} rows", cases, rounds=5)


def _sharing(source: Path, state: Path) -> None:
    """Memory of sessions that go through the same text, beyond that of as many that do the same with one line."""
    policy, line = state.parent / "policy.yaml", state.parent / "line.log"
    policy.write_text(POLICY.format(folders=[str(source.resolve().parent), str(state.parent)]))
    line.write_text("one line\n")
    try:
        idle = _used_with(line, policy, state)
        busy = _used_with(source, policy, state)
    finally:
        end()
    size = source.stat().st_size / 1e6
    print(f"\n{SESSIONS} sessions: {busy:,.0f} MB PSS with the same {size:,.0f} MB of text, {idle:,.0f} with a line")
    TARGETS.append(Target(f"{SESSIONS} sessions with the same text, of one copy", (busy - idle) / size, 1.3))


def _used_with(source: Path, policy: Path, state: Path) -> float:
    """MB of the daemon, its supervisor and sessions that have used a text, all that is resident of it included."""
    clients = [Client(f"{source.stem}-{number}", policy=policy) for number in range(SESSIONS)]
    for client in clients:
        with client:
            client.load_context("log", path=source)
            cell = client.eval_code(USE)
        if not cell.success:
            raise RuntimeError(f"the cell failed: {cell}")
    time.sleep(SETTLED_SECONDS)
    used = sum(megabytes(ours(state)).values())
    for client in clients:
        with client:
            client.end_session()
    return used


def _program(command: list[str]) -> Callable[[], float]:
    """Processor time of a command whose output is read."""
    environment = {**os.environ, "LC_ALL": "C"}
    return _of_children(lambda: subprocess.run(command, stdout=subprocess.PIPE, check=False, env=environment))


def _of_children(action: Callable[[], object]) -> Callable[[], float]:
    """Processor time of the processes that this starts and ends."""

    def run() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        action()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def _own_time(action: Callable[[], object], memory: int = 0) -> Callable[[], float]:
    def run() -> float:
        _ask_for(memory)
        started = time.process_time()
        action()
        return time.process_time() - started

    return run


def _ask_for(memory: int) -> float:
    """Seconds until the system has given so many bytes, which are given back at once and so are at hand.

    The host of a virtual machine takes free memory away, and to get it back can take longer than all work on it.  The
    plain list has the memory of its strings when it is measured, so idioms that need as much get it beforehand too.
    """
    started = time.perf_counter()
    if memory:
        with mmap.mmap(-1, memory, flags=mmap.MAP_PRIVATE) as area:
            area.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, memory, mmap.PAGESIZE):
                area[at] = 1
    return time.perf_counter() - started


def _idioms(log: ContextVariable) -> None:
    memory = min(4 * len(log["content"]), psutil.virtual_memory().available // 3)
    seconds = [_ask_for(memory) for _ in range(2)]
    print(f"\n{memory >> 20:,} MiB of memory from the system: {seconds[0]:.2f} s, again at once: {seconds[1]:.2f} s")
    content = (log["content"] + " ")[:-1]
    lines = list(log["lines"])
    for name, idiom in CONTENT_IDIOMS.items():
        TARGETS.append(Target(f"content: {name}", _pair(f"content: {name}", idiom, content, log["content"]), 1.15))
    costs: list[float] = []
    for name, idiom in LINE_IDIOMS.items():
        cost = _pair(f"lines: {name}", idiom, lines, log["lines"], memory if name in HOLD_ALL else 0)
        costs.append(cost)
        TARGETS.append(Target(f"lines: {name}", cost, 3.5))
    TARGETS.append(Target("lines, median", statistics.median(costs), 2))


def _pair(name: str, idiom: Callable[[Any], object], plain: object, shared: object, memory: int = 0) -> float:
    if json.dumps(idiom(plain), default=str) != json.dumps(idiom(shared), default=str):
        raise AssertionError(f"{name}: not the same result")
    ways = {"plain": plain, "context": shared}
    cases = [Case(way, _own_time(partial(idiom, text), memory)) for way, text in ways.items()]
    return compare(name, cases, rounds=9)[-1].cost


if __name__ == "__main__":
    main()
