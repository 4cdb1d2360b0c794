"""Compares ways of doing the same thing on a noisy machine: interleaved runs, medians, ratios.

Runs alternate (A B C, C B A, A B C, ...), so that a slow minute slows all of them and none always follows the
same. What is reported is the ratio of the medians and, as a measure of its noise, the quartiles of the ratios
within each round.

    from ratio import Case, compare

    compare("start", [Case("stock", stock), Case("ours", ours)], rounds=20)
"""

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Case:
    """One way: its name, and a function that does it once; it returns its seconds, or None to be timed."""

    name: str
    run: Callable[[], float | None]


@dataclass(frozen=True)
class Result:
    """Of one case: median and quartiles in seconds, and how many times slower the first case is.

    `cost` is the median, over the rounds, of how many times slower than the first case this one is.
    """

    benchmark: str
    case: str
    rounds: int
    median: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    cost: float


def compare(benchmark: str, cases: Sequence[Case], *, rounds: int = 20, warm_up: int = 1) -> list[Result]:
    """Run `cases` in turn, `rounds` times after `warm_up` unmeasured turns; print and return the results.

    Ratios are relative to the first case: 20.0 means 20 times faster than the first. With `--json` on the
    command line a line of JSON is printed for each case instead of the table.
    """
    for _ in range(warm_up):
        for case in cases:
            case.run()
    measured = [_round(cases, backwards=at % 2 > 0) for at in range(rounds)]
    results = [_result(benchmark, case.name, index, measured) for index, case in enumerate(cases)]
    _print(results)
    return results


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _round(cases: Sequence[Case], *, backwards: bool) -> list[float]:
    times = [_measure(case) for case in (reversed(cases) if backwards else cases)]
    return times[::-1] if backwards else times


def _measure(case: Case) -> float:
    gc.collect()
    started = time.perf_counter()
    reported = case.run()
    return time.perf_counter() - started if reported is None else reported


def _result(benchmark: str, name: str, index: int, measured: list[list[float]]) -> Result:
    times = [row[index] for row in measured]
    ratios = [row[0] / row[index] for row in measured]
    low, median, high = quartiles(times)
    ratio_low, within, ratio_high = quartiles(ratios)
    ratio = statistics.median(row[0] for row in measured) / median
    return Result(benchmark, name, len(times), median, low, high, ratio, ratio_low, ratio_high, 1 / within)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third quartile."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, median, high


def _print(results: Sequence[Result]) -> None:
    if "--json" in sys.argv:
        for result in results:
            print(json.dumps(asdict(result)))
        return
    print(f"\n{results[0].benchmark} ({results[0].rounds} interleaved rounds)")
    print(f"  {'':28} {'median':>10} {'quartiles':>21} {'times faster':>22}")
    for result in results:
        span = f"{_time(result.low)} .. {_time(result.high)}"
        ratio = f"{result.ratio:.2f} ({result.ratio_low:.2f}..{result.ratio_high:.2f})"
        print(f"  {result.case:28} {_time(result.median):>10} {span:>21} {ratio:>22}")


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError
