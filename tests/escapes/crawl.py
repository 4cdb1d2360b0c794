"""Search for ways through the language wall: `make crawl`, and three minutes of it in the tests.

From everything that a session can name under a policy it calls each callable with hostile objects and with objects of
libraries, goes on with what comes back, and looks, outside of the wall, for anything real in what the session then
holds. `--help` says what can be chosen. Runs can be repeated (`--seed`) and continued (`--state`).
"""

from __future__ import annotations

import argparse
import gc
import json
import mmap
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import crawl_adapter as adapter
import crawl_judge
import crawl_reverted
from crawl_batch import HEADER, LINE, Batch, confine_child, load_finding, replay
from crawl_exploits import EXPLOITS
from crawl_hostile import BLOCKS, PRELUDE, blocks_for, modules_in
from crawl_judge import Finding, Judge, Watch
from crawl_planted import PLANTED
from crawl_session import CrawlSession, Pool
from crawl_steps import Walker
from crawl_surface import surface
from crawl_ways import Ways

MODES: Final = (
    *(
        "routes",
        "reflect",
        "make",
        "random",
        "lend",
        "names",
        "operations",
        "stores",
        "pairs",
        "labels",
        "bases",
        "random",
        "words",
    ),
    "sweep",
)
_IN_ORDER: Final = ("bases", "lend", "make", "names", "pairs", "stores")
"""Modes that go through the targets, from where the batch before them ended."""
_SILENT_SECONDS: Final = 4.0
"""A batch that computes for so long and takes no step is killed,"""
_ASLEEP_SECONDS: Final = 20.0
"""and one that does nothing for so long; a machine that is busy may let it wait for some time."""
KNOWN: Final = {
    "known poison": "methods of libraries beyond the standard one, called with a class of such a library, store on it",
    "known private": "what a library keeps in an object of a class that the session derived from the library's",
}
"""What is told with its reason and is no failure; SECURITY.md says so too."""
WEIGHTS: Final = {"strict": 25, "untrusted": 10, "default": 45, "tables": 40, "data": 60}
"""How the time of a run is split over the policies."""


@dataclass
class State:
    """What a run has done so far; kept in a file, it can go on later."""

    seed: int = 1
    batches: int = 0
    steps: int = 0
    seconds: float = 0.0
    cursor: dict[str, int] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    recipes: dict[str, str] = field(default_factory=dict)
    """How to make objects of classes, as batches have found out."""
    asked: set[str] = field(default_factory=set)
    """Callables and hostile objects that they take, as batches have found out."""
    crashes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the state."""
        # Not `asdict`, which copies a Counter as one of pairs.
        data = {**vars(self), **{name: sorted(getattr(self, name)) for name in ("called", "answered", "asked")}}
        path.write_text(json.dumps(data), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> State:
        """Read a state."""
        data = json.loads(path.read_text(encoding="utf-8"))
        state = cls(**data)
        state.called, state.answered, state.asked = set(state.called), set(state.answered), set(state.asked)
        state.crashes = Counter(state.crashes)
        return state


def _worked(pid: int) -> float:
    """The seconds of processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Crawler:
    """One policy: a warm process that forks a batch after the other."""

    def __init__(self, policy: str, options: argparse.Namespace, state: State) -> None:
        self.options, self.state = options, state
        self.folder = tempfile.TemporaryDirectory(prefix="crawl", dir="/tmp")
        root = Path(self.folder.name)
        for name in ("workspace", "scratch", "outside"):
            (root / name).mkdir()
        (root / "outside" / "secret.txt").write_text("secret", encoding="utf-8")
        self.scratch = str(root / "scratch")
        places = {"outside": str(root / "outside" / "secret.txt"), "inside": f"{self.scratch}/x"}
        os.chdir(self.scratch)
        self.policy = adapter.make_policy(policy, str(root / "workspace"), self.scratch)
        adapter.LanguageWall.preload(self.policy)
        functions = {id(value): value for value in gc.get_objects() if type(value) is FunctionType}
        self.session = CrawlSession(self.policy, places, PLANTED if options.planted else {})
        self.pool = Pool(self.session)
        self.targets = surface(self.session, self.pool)
        if options.only:
            self.targets = [target for target in self.targets if options.only.search(target.key)]
        if options.without:
            self.targets = [target for target in self.targets if not options.without.search(target.key)]
        gc.collect()
        self.judge = Judge(options.originals, self.session, functions)
        self.watch = Watch(self.scratch, str(root / "workspace"))
        self.index = {target.key: number for number, target in enumerate(self.targets)}
        self.progress = mmap.mmap(-1, HEADER + len(self.targets))
        self.started, self.mode, self.before = time.monotonic(), "", (0,)
        gc.collect()
        gc.freeze()

    # -- batches

    def crawl(self, seconds: float) -> None:
        """Run batches until the time is over, or until something is found if that is all that is asked."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not (self.options.first and self.unknown()):
            before = time.monotonic()
            self.batch(self._plan(end - before))
            self.state.seconds += time.monotonic() - before
            self.state.batches += 1
            if self.options.state:
                self.state.save(self.options.state)

    def unknown(self) -> bool:
        """Whether there is a finding that is not among the known ones."""
        return any(data["kind"] not in KNOWN for data in self.state.findings.values())

    def _plan(self, left: float) -> Batch:
        state, number = self.state, self.state.batches
        seed = f"{state.seed}:{number}"
        chance = random.Random(seed)
        usable = [n for n, target in enumerate(self.targets) if state.crashes[target.key] < 2]
        fresh = [n for n in usable if self.targets[n].key not in state.called]
        modes = self.options.modes
        mode = modes[number % len(modes)]
        if fresh and "sweep" in modes and number % 3 == 0:
            mode = "sweep"
        seconds = min(self.options.batch, max(1.0, left))
        if mode == "sweep":
            chosen = chance.sample(fresh or usable, min(1500, len(fresh or usable)))
        elif mode in _IN_ORDER:
            chosen = self._in_order(mode, usable)
        else:
            chosen = chance.choices(usable, [4 if self.targets[n].trusted else 1 for n in usable], k=400)
        return Batch(mode, seed, tuple(chosen), state.cursor.get(mode, 0), seconds)

    def _in_order(self, mode: str, usable: list[int]) -> list[int]:
        """The next targets of a mode, in an order of the seed's: a part of a round tells as much as any other part."""
        kinds = {
            "bases": lambda target: target.kind == "base",
            "lend": lambda target: target.trusted and target.kind != "base",
            "make": lambda target: target.kind in ("class", "function"),
            "names": lambda target: target.kind == "function" or (target.trusted and target.kind != "base"),
        }
        kept = kinds.get(mode, lambda target: target.kind != "base")
        chosen = [n for n in usable if kept(self.targets[n])]
        random.Random(self.state.seed).shuffle(chosen)
        if mode in ("bases", "make", "names"):
            # Where the wall has a hand in it, a mistake is ours. Methods want an object of their class, and come last.
            chosen.sort(
                key=lambda n: (not self.targets[n].watched, mode == "names" and self.targets[n].kind != "function")
            )
        start = self.state.cursor.get(mode, 0) % len(chosen)
        return (chosen[start:] + chosen[:start])[:600]

    def batch(self, batch: Batch) -> None:
        """Run one batch in a fork and take what it tells."""
        read, write = os.pipe()
        self.progress[0:16] = bytes(16)
        self.mode, self.before = batch.mode, (self.state.steps,)
        pid = self._fork(read, write, lambda walker: Ways(walker, self.targets, write, self.progress).run(batch), batch)
        told = self._listen(read, pid, batch.seconds, self._take)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        last = told[-1] if told else {"steps": 0, "next": 0}
        self.state.steps += max(last["steps"], int.from_bytes(self.progress[8:16], "little"))
        for number, mark in enumerate(self.progress[HEADER:]):
            if mark:
                self.state.called.add(self.targets[number].key)
            if mark == 2:
                self.state.answered.add(self.targets[number].key)
        if not last.get("last"):
            number = int.from_bytes(self.progress[0:8], "little")
            key = self.targets[number - 1].key if number else f"[{batch.mode}]"
            self.state.crashes[key] += 1
            self.state.called.add(key)
            if self.options.verbose:
                line = self.progress[LINE:HEADER].rstrip(b"\0").decode("utf-8", "replace")
                print(f"  batch ended with {status} at {key}: {line}", flush=True)
        if batch.mode in ("operations", "words", *_IN_ORDER):
            done = last["next"] if batch.mode in ("operations", "words") else batch.start + last["next"]
            self.state.cursor[batch.mode] = max(done, batch.start + 1)

    def _take(self, message: dict[str, Any]) -> None:
        for name, expression in message["learnt"].items():
            self.state.recipes.setdefault(name, expression)
        self.state.asked.update(message["asked"])
        for data in message["findings"]:
            finding = load_finding(data)
            if finding.signature not in self.state.findings:
                steps = self.before[0] + finding.step
                where = {"at_step": steps, "at_second": round(time.monotonic() - self.started, 1), "mode": self.mode}
                self.state.findings[finding.signature] = {**data, **where}
                if self.options.verbose:
                    print(f"  {finding.kind}: {finding.what} by {finding.origin} {where}", flush=True)

    def _fork(self, read: int, write: int, work: Any, batch: Batch) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            os.close(write)
            return pid
        try:
            os.close(read)
            warnings.simplefilter("ignore")
            confine_child(self.policy, self.scratch, [write])
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            adapter.close_wall(self.session.wall, (adapter, crawl_judge))
            walker = Walker(self.session, self.pool, self.judge, self.watch, batch.seed)
            walker.recipes, walker.asked = dict(self.state.recipes), set(self.state.asked)
            work(walker)
        except BaseException:
            text = traceback.format_exc()
            os.write(write, json.dumps({"error": text}).encode() + b"\n")
        finally:
            os._exit(0)

    def _listen(self, read: int, pid: int, seconds: float, take: Any = None) -> list[dict[str, Any]]:
        """What a batch tells, until it ends; a batch that hangs is killed."""
        data, steps, moved, worked = b"", b"", time.monotonic(), _worked(pid)
        messages: list[dict[str, Any]] = []
        limit = time.monotonic() + seconds * 30 + 60  # the seconds are of processor time, which others need too
        while True:
            ready = select.select([read], [], [], 0.5)[0]
            if ready:
                piece = os.read(read, 1 << 20)
                if not piece:
                    break
                *lines, data = (data + piece).split(b"\n")
                for line in lines:
                    messages.append(json.loads(line))
                    if "error" in messages[-1]:
                        print(messages.pop()["error"], file=sys.stderr)
                    elif take is not None:
                        take(messages[-1])
            if self.progress[0:16] != steps:
                steps, moved, worked = self.progress[0:16], time.monotonic(), _worked(pid)
            enough = take is not None and self.options.first and self.unknown()
            silent = time.monotonic() - moved
            hangs = silent > _SILENT_SECONDS and (_worked(pid) - worked > _SILENT_SECONDS or silent > _ASLEEP_SECONDS)
            if time.monotonic() > limit or hangs or enough:
                os.kill(pid, signal.SIGKILL)
                limit = time.monotonic() + 60
                moved = limit
        os.close(read)
        return messages

    # -- findings

    def reproduces(self, finding: Finding, lines: tuple[str, ...]) -> bool:
        """Whether these lines alone, in a fresh session, lead to the same kind of finding."""
        return finding.kind in self.kinds_of(lines)

    def kinds_of(self, lines: tuple[str, ...]) -> list[str]:
        """The kinds of what these lines alone, in a fresh session, lead to."""
        read, write = os.pipe()

        def work(walker: Walker) -> None:
            signal.alarm(20)
            kinds = replay(walker, lines, self.targets)
            os.write(write, json.dumps({"kinds": sorted(kinds)}).encode() + b"\n")

        pid = self._fork(read, write, work, Batch("replay", "0", ()))
        self.progress[0:16] = bytes(16)
        told = self._listen(read, pid, 5)
        os.waitpid(pid, 0)
        return [kind for message in told for kind in message["kinds"]]

    def minimise(self, finding: Finding) -> tuple[str, ...] | None:
        """The fewest lines that still show a finding, or None when it does not show again."""
        lines = tuple(finding.script)
        if not lines or not self.reproduces(finding, lines):
            return None
        position = 0
        while position < len(lines) and len(lines) > 1:
            fewer = lines[:position] + lines[position + 1 :]
            if self.reproduces(finding, fewer):
                lines = fewer
            else:
                position += 1
        return lines

    def script(self, lines: tuple[str, ...]) -> str:
        """Source of a session that shows a finding without the crawler."""
        text = "\n".join(lines)
        needed = blocks_for(text)
        whole = "\n".join([text, *(BLOCKS[label] for label in needed)])
        imports = "".join(f"import {name}\n" for name in modules_in(whole, set(self.session.imported)))
        blocks = "\n".join(BLOCKS[label].strip() for label in needed)
        return f"{PRELUDE.strip()}\n{imports}{blocks}\n# ----\n{text}"

    def report(self) -> list[dict[str, Any]]:
        """Print coverage and findings; returns the findings."""
        known, state = len(self.targets), self.state
        called = len(state.called & self.index.keys())
        answered = len(state.answered & self.index.keys())
        print(
            f"{self.options.policy}: {state.steps} steps in {state.seconds:.0f} s "
            f"({state.steps / max(1, state.seconds):.0f}/s), "
            f"{called}/{known} = {called / known:.0%} called, {answered / known:.0%} answered, "
            f"{sum(state.crashes.values())} batches ended early, refused blocks: {self.session.refused or 'none'}",
            flush=True,
        )
        found = sorted(state.findings.values(), key=lambda data: (data["kind"], data["at_step"]))
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for data in found:
            by_way = data["kind"] in ("registry", "poison", "private", "event", "below", *KNOWN)
            groups.setdefault((data["kind"], data["origin"].split()[0] if by_way else data["what"]), []).append(data)
        shown = []
        for (kind, what), members in groups.items():
            best = min(members, key=lambda data: (len(data["script"]), sum(map(len, data["script"]))))
            lines = self.minimise(load_finding(best)) if self.options.minimise and kind not in KNOWN else None
            print(
                f"\n{kind}: {what}: {len(members)} ways, first at step {members[0]['at_step']}, "
                f"{members[0]['at_second']} s, {members[0]['mode']}"
            )
            for data in members[:8]:
                print(f"    {data['origin']}: {data['what']}")
            seen = KNOWN.get(kind, "seen, not reproduced alone")
            print(f"    {'shown by' if lines else seen}:")
            print("\n".join(f"        {row}" for line in (lines or best["script"]) for row in line.split("\n")))
            shown.append({**best, "ways": [data["origin"] for data in members], "lines": lines})
        return shown


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options of a run."""
    import re

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=adapter.POLICIES, help="default: all, one after the other")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", type=lambda text: text.split(","), default=list(MODES))
    parser.add_argument("--batch", type=float, default=4.0, help="seconds of processor time a fork takes steps")
    parser.add_argument("--originals", choices=("held", "harmless"), default="harmless")
    parser.add_argument("--only", type=re.compile, help="only targets whose name matches")
    parser.add_argument(
        "--revert",
        action="append",
        default=[],
        choices=crawl_reverted.REVERTED,
        help="open a hole again that was closed",
    )
    parser.add_argument("--exploit", action="append", choices=EXPLOITS, help="try only what is known of a hole")
    parser.add_argument("--each-reverted", action="store_true", help="the same with each of them, one after the other")
    parser.add_argument("--planted", action="store_true", help="search a session that holes were planted in")
    parser.add_argument(
        "--without", type=re.compile, help="leave out targets whose name matches, to search behind them"
    )
    parser.add_argument("--state", type=Path, help="a file to continue from, and to write")
    parser.add_argument("--json", type=Path, help="write the findings there")
    parser.add_argument("--no-minimise", dest="minimise", action="store_false")
    parser.add_argument("--first", action="store_true", help="stop when something is found")
    parser.add_argument("--verbose", action="store_true")
    return parser.parse_args(arguments)


def each_policy(options: argparse.Namespace, arguments: list[str]) -> int:
    """Crawl each policy in a process of its own, the data libraries longest; whether any had findings."""
    failed = False
    for policy in adapter.POLICIES:
        minutes = options.minutes * WEIGHTS[policy] / sum(WEIGHTS.values())
        command = [sys.executable, __file__, *arguments, "--policy", policy, "--minutes", str(minutes)]
        for option in ("state", "json"):
            path = getattr(options, option)
            if path is not None:
                command += [f"--{option}", str(path.with_stem(f"{path.stem}-{policy}"))]
        failed |= subprocess.run(command, check=False).returncode != 0
    return int(failed)


def each_reverted(options: argparse.Namespace) -> int:
    """Open each hole again that was closed, and search until it is found; whether any was not."""
    missed = []
    for name, (policy, mode) in crawl_reverted.FOUND_BY.items():
        print(f"\n{name}:", flush=True)
        chosen = ["--policy", policy, "--modes", mode, "--minutes", str(options.minutes), "--seed", str(options.seed)]
        command = [sys.executable, __file__, "--revert", name, "--first", "--no-minimise", *chosen]
        if subprocess.run(command, check=False).returncode == 0:
            missed.append(name)
    print(f"\nnot found again: {', '.join(missed) or 'none'}", flush=True)
    return int(bool(missed))


def main(arguments: list[str]) -> int:
    """Crawl, report, and say by the exit code whether something was found."""
    options = parse(arguments)
    if options.each_reverted:
        return each_reverted(options)
    if options.policy is None:
        return each_policy(options, arguments)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["MPLBACKEND"] = "Agg"
    warnings.simplefilter("ignore")
    for name in options.revert:
        crawl_reverted.apply(name)
    state = State.load(options.state) if options.state and options.state.exists() else State(options.seed)
    crawler = Crawler(options.policy, options, state)
    if options.exploit:
        told = {name: crawler.kinds_of(EXPLOITS[name].lines) for name in options.exploit}
        options.json.write_text(json.dumps(told), encoding="utf-8")
        return 0
    print(f"{options.policy}: {len(crawler.targets)} targets, {len(crawler.pool.samples)} samples", flush=True)
    crawler.crawl(options.minutes * 60)
    found = [data for data in crawler.report() if data["kind"] not in KNOWN]
    if options.json:
        options.json.write_text(json.dumps({"findings": found, "steps": state.steps}), encoding="utf-8")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
