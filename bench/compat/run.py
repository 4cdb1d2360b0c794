"""How much ordinary Python runs behind the language wall as it does without: `make bench-compat`.

Every case of every corpus that is installed runs on plain CPython and behind the wall, in processes of its own and
under a time limit. What it printed, and the types of the exceptions that it raised, must be the same. A case that
differs runs on plain CPython once more: one that differs from itself there (times, identities) shows nothing.

    python bench/compat/run.py [NAME ...] [--every N] [--unblock] [--report FILE]
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cases import Case, Corpus, Outcome
from corpora import dataframebench, doctests, humaneval, mbpp
from verdict import BROKEN, DIFFERENT, IDENTICAL, REFUSED, REFUSED_BY_WALL, UNSTABLE, Verdict, judge, same

HERE = Path(__file__).resolve().parent
CORPORA: tuple[Corpus, ...] = (humaneval.CORPUS, mbpp.CORPUS, dataframebench.CORPUS, *doctests.CORPORA)
COLUMNS = (IDENTICAL, REFUSED, REFUSED_BY_WALL, DIFFERENT)
_ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def outcomes(mode: str, corpus: Corpus, cases: Sequence[Case], *, unblock: bool) -> Iterator[Outcome]:
    """Run the cases in a worker of their own."""
    environment = {**os.environ, **_ONE_THREAD, "PYTHONHASHSEED": "0", "MPLBACKEND": "agg"}
    sandbox = str(HERE.parents[1] / "sandbox")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [sandbox, os.environ.get("PYTHONPATH")]))
    command = [
        sys.executable,
        str(HERE / "worker.py"),
        mode,
        corpus.policy,
        ",".join(corpus.preload),
        str(int(unblock)),
    ]
    text = "".join(json.dumps(dataclasses.asdict(case)) + "\n" for case in cases)
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"the worker for {corpus.name} failed; it said:\n{done.stderr[-2000:]}")
    return (Outcome.from_json(json.loads(line)) for line in done.stdout.splitlines())


def examine(corpus: Corpus, every: int, *, unblock: bool) -> list[Verdict]:
    """The verdicts of a corpus, or of each ``every``-th of its cases."""
    cases = list(corpus.read())[::every]
    plain, walled = (list(outcomes(mode, corpus, cases, unblock=unblock)) for mode in ("plain", "wall"))
    doubtful = [case for case, *both in zip(cases, plain, walled, strict=True) if not same(*both)]
    again = {one.name: one for one in outcomes("plain", corpus, doubtful, unblock=unblock)} if doubtful else {}
    together = zip(cases, plain, walled, strict=True)
    return [judge(case, one, again.get(case.name, one), other) for case, one, other in together]


def row(name: str, verdicts: Sequence[Verdict]) -> str:
    """One line of the table."""
    counts = collections.Counter(verdict.kind for verdict in verdicts)
    compared = sum(counts[kind] for kind in COLUMNS)
    allowed = compared - counts[REFUSED]
    share = f"{100 * counts[IDENTICAL] / allowed:.2f} %" if allowed else "-"
    numbers = [compared, *(counts[kind] for kind in COLUMNS), share, counts[UNSTABLE] + counts[BROKEN]]
    return f"| {name} | " + " | ".join(map(str, numbers)) + " |"


HEAD = f"""\
| corpus | compared | {" | ".join(COLUMNS)} | identical of what the policy admits | not comparable |
|---|---|---|---|---|---|---|---|"""


def differences(results: dict[str, list[Verdict]]) -> Iterator[str]:
    """One line for each case that is not identical; refusals of the policy are counted by their reason."""
    for kind in (DIFFERENT, REFUSED_BY_WALL):
        yield f"\n{kind}:"
        for verdicts in results.values():
            yield from (f"  {one.case}: {one.reason}" for one in verdicts if one.kind == kind)
    yield f"\n{REFUSED} (cases: reason):"
    everything = (one for verdicts in results.values() for one in verdicts)
    reasons = collections.Counter(one.reason for one in everything if one.kind == REFUSED)
    yield from (f"  {count}: {reason}" for reason, count in reasons.most_common())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the status is 1 when a corpus that was asked for by name is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"corpora: {', '.join(corpus.name for corpus in CORPORA)}")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="run only each N-th case")
    parser.add_argument("--unblock", action="store_true", help="with language.blocked_names: [] (eval and the like)")
    parser.add_argument("--report", type=Path, help="write every difference, with its reason, into this file")
    options = parser.parse_args(arguments)
    chosen = [one for one in CORPORA if (one.name in options.names if options.names else not one.on_request)]
    results: dict[str, list[Verdict]] = {}
    missing = {one.name: one.missing() for one in chosen}
    print(HEAD, flush=True)
    for corpus in chosen:
        if not missing[corpus.name]:
            results[corpus.name] = examine(corpus, options.every, unblock=options.unblock)
            print(row(corpus.name, results[corpus.name]), flush=True)
    if len(results) > 1:
        print(row("all", [verdict for verdicts in results.values() for verdict in verdicts]))
    for name, way in missing.items():
        if way:
            print(f"\n{name} is not here: {way}")
    text = "\n".join(differences(results))
    if options.report:
        options.report.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    return 1 if options.names and any(missing.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
