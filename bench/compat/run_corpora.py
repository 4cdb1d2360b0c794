"""How much ordinary Python runs behind the language wall as it does without: `make bench-compat`.

Every case of every corpus that is installed runs on plain CPython and behind the wall, in processes of its own and
under a time limit. What it printed, and the types of the exceptions that it raised, must be the same. A case that
differs runs on plain CPython once more: one that differs from itself there (times, identities, the order of sets)
shows nothing. With ``--sessions`` each case runs in a real session of its own, in place of a process behind the wall.

    python bench/compat/run_corpora.py [NAME ...] [--every N] [--sessions | --unblock] [--report FILE]
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cases import Case, Corpus, Outcome
from corpora import agent_cells, doctests, published
from sessions import outcomes as in_sessions
from verdict import BROKEN, DIFFERENT, IDENTICAL, REFUSED, RULES, UNSTABLE, Verdict, judge, same

HERE = Path(__file__).resolve().parent
CORPORA: tuple[Corpus, ...] = (
    published.HUMAN_EVAL,
    published.MBPP_PROBLEMS,
    *doctests.CORPORA,
    *agent_cells.CORPORA,
    published.ALGORITHMS,
    published.DATAFRAMEBENCH,
)
TARGET = 99.5
"""Per cent of the cases that no rule of the policy refuses."""

_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Runner:
    """Runs the cases of one corpus: those on plain Python and those behind the wall, or in sessions, side by side."""

    def __init__(self, corpus: Corpus, *, unblock: bool, sessions: bool) -> None:
        self._corpus = corpus
        self._unblock = unblock
        self._sessions = sessions
        self._environment = {**os.environ, **_ONE_THREAD, "MPLBACKEND": "agg"}
        sandbox = str(HERE.parents[1] / "sandbox")
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, [sandbox, os.environ.get("PYTHONPATH")]))

    def outcomes(self, mode: str, cases: Sequence[Case], *, order: int = 0) -> list[Outcome]:
        """Run the cases in a worker of their own; ``order`` is that of sets."""
        arguments = [mode, self._corpus.policy, ",".join(self._corpus.preload), str(int(self._unblock))]
        text = "".join(json.dumps(dataclasses.asdict(case)) + "\n" for case in cases)
        with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as complaints:
            given.write(text)
            given.seek(0)
            done = subprocess.run(
                [sys.executable, str(HERE / "worker.py"), *arguments],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env={**self._environment, "PYTHONHASHSEED": str(order)},
                check=False,
            )
            complaints.seek(0)
            if done.returncode:
                raise SystemExit(f"the worker for {self._corpus.name} failed; it said:\n{complaints.read()[-2000:]}")
        return [Outcome.from_json(json.loads(line)) for line in done.stdout.splitlines()]

    def verdicts(self, cases: Sequence[Case]) -> list[Verdict]:
        """Run the cases in both ways, and on plain Python once more those that differ."""
        with ThreadPoolExecutor(1) as pool:
            beside = pool.submit(self.outcomes, "plain", cases)
            walled = self._in_sessions(cases) if self._sessions else self.outcomes("wall", cases)
            plain = beside.result()
        doubtful = [case for case, *both in zip(cases, plain, walled, strict=True) if not same(*both)]
        again = self._again(doubtful) if doubtful else []
        return self._judged(cases, plain, walled, {one.name: one for one in again})

    def _again(self, cases: Sequence[Case]) -> list[Outcome]:
        """Run cases on plain Python once more, for sessions in another order of sets and with another linear algebra.

        Kernels have an order that nobody chooses, and no variables that choose how many threads round which way.
        """
        if not self._sessions:
            return self.outcomes("plain", cases)
        library = ("OPENBLAS_", "OMP_", "MKL_")
        self._environment = {name: text for name, text in self._environment.items() if not name.startswith(library)}
        return self.outcomes("plain", cases, order=1)

    def _in_sessions(self, cases: Sequence[Case]) -> list[Outcome]:
        preloaded = [name.partition(".")[0] for name in self._corpus.preload]
        return list(in_sessions(cases, self._corpus.policy, with_numpy="numpy" in preloaded))

    @staticmethod
    def _judged(
        cases: Sequence[Case], plain: Sequence[Outcome], walled: Sequence[Outcome], again: Mapping[str, Outcome]
    ) -> list[Verdict]:
        together = zip(cases, plain, walled, strict=True)
        return [judge(case, one, again.get(case.name, one), other) for case, one, other in together]


HEAD = """\
| corpus | compared | identical | refused by a rule | different | identical of what no rule refuses | target | \
not comparable | seconds |
|---|---|---|---|---|---|---|---|---|"""


def row(name: str, verdicts: Sequence[Verdict], seconds: float) -> str:
    """One line of the table."""
    counts = collections.Counter(verdict.kind for verdict in verdicts)
    admitted = counts[IDENTICAL] + counts[DIFFERENT]
    share = 100 * counts[IDENTICAL] / admitted if admitted else 0.0
    cells = [
        name,
        admitted + counts[REFUSED],
        counts[IDENTICAL],
        counts[REFUSED],
        counts[DIFFERENT],
        f"{share:.2f} %" if admitted else "-",
        "-" if not admitted else "met" if share >= TARGET else "not met",
        counts[UNSTABLE] + counts[BROKEN],
        f"{seconds:.0f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def differences(results: dict[str, list[Verdict]]) -> Iterator[str]:
    """Every case that differs, then the refusals by the rule that they fall under and the reason they were given."""
    everything = [one for verdicts in results.values() for one in verdicts]
    yield f"{DIFFERENT}:"
    yield from (f"  {one.case}: {one.reason}" for one in everything if one.kind == DIFFERENT)
    refused = [one for one in everything if one.kind == REFUSED]
    rules = collections.Counter(one.rule for one in refused)
    for rule, count in rules.most_common():
        yield f"\n{REFUSED}, {rule} ({RULES[rule]}): {count}"
        reasons = collections.Counter(one.reason for one in refused if one.rule == rule)
        yield from (f"  {times}: {reason}" for reason, times in reasons.most_common())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the status is 1 when a corpus that was asked for by name is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"corpora: {', '.join(corpus.name for corpus in CORPORA)}")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run only each N-th case")
    parser.add_argument("--unblock", action="store_true", help="with language.blocked_names: [] (eval and the like)")
    parser.add_argument("--sessions", action="store_true", help="in a real session for each case")
    parser.add_argument("--report", type=Path, help="write every difference, with its reason, into this file")
    options = parser.parse_args(arguments)
    chosen = [one for one in CORPORA if (one.name in options.names if options.names else not one.on_request)]
    if options.sessions and options.unblock:
        parser.error("--unblock has no policy of its own, which sessions need")
    if not options.sessions:
        return _run(chosen, options)
    sys.path.append(str(HERE.parent))
    from apart import folders

    with folders():
        return _run(chosen, options)


def _run(chosen: Sequence[Corpus], options: argparse.Namespace) -> int:
    results: dict[str, list[Verdict]] = {}
    missing = {one.name: one.missing() for one in chosen}
    print(HEAD, flush=True)
    begun = time.monotonic()
    for corpus in chosen:
        if not missing[corpus.name]:
            start = time.monotonic()
            cases = list(corpus.read())[:: options.every]
            if options.sessions:  # their tests are a reader's outside, and want the namespace of the cells
                cases = [case for case in cases if not case.tests]
            results[corpus.name] = Runner(corpus, unblock=options.unblock, sessions=options.sessions).verdicts(cases)
            print(row(corpus.name, results[corpus.name], time.monotonic() - start), flush=True)
    if len(results) > 1:
        print(row("all", [one for verdicts in results.values() for one in verdicts], time.monotonic() - begun))
    for name, way in missing.items():
        if way:
            print(f"\n{name} is not here: {way}")
    text = "\n".join(differences(results))
    if options.report:
        options.report.write_text(text + "\n", encoding="utf-8")
    else:
        print(f"\n{text}")
    return 1 if options.names and any(missing.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
