"""Random patterns and texts, on which scan has to find the lines that Python's `re` finds one by one.

    python tests/support/scan_pairs.py [--pairs 50000] [--seed N] [--jobs N]

As a program (`make fuzz-scan`) it goes through so many pairs, names each that differs, and fails when one does. A
pair counts when both have an answer: what `re` refuses as a pattern, or cannot finish in time, does not.
"""

import argparse
import multiprocessing
import os
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from line_loops import split_lines

from rlm_contexts.errors import InvalidRegex, ScanTimeout
from rlm_contexts.search.deadline import Expired, interrupting
from rlm_contexts.search.literals import needles_for
from rlm_contexts.search.scan import scan
from rlm_contexts.searches import ScanResult
from rlm_contexts.text.lines import Lines
from rlm_contexts.text.text import Text

ATOMS = [
    *["a", "b", "e", "E", "k", "s", "i", "I", " ", "1", ".", r"\.", r"\t", r"\n", r"\r", r"\x00", ""],
    *[r"\w", r"\d", r"\s", r"\W", r"\D", r"\S", r"\b", r"\B", "^", "$", r"\A", r"\Z"],
    *["[a-c]", "[^a]", r"[^\w]", r"[\d_]", r"[^\s-]", r"[\W\d]", "[k-s]", r"[\r\n]", r"[^\x00-\x7f]"],
    *["\xe9", "\xc9", "\xdf", "\u017f", "\u212a", "\u03a3", "\u03c2", "\u0130", "\u0131", "\U0001f600"],
    *["[\xe0-\xfc]", "[^\xe9]", "[\u212a]", "[\u017f]"],
    *["(?i:a)", "(?-i:K)", "(?-i:s)", r"(?a:\w)", "(?a:\xe9)", "(?=a)", "(?!b)", "(?<=a)", "(?<!e)"],
]
SUFFIXES = ["*", "+", "?", "{2}", "{1,2}", "{0,3}", "*?", "+?", "??", "*+", "++", "{2,}"]
NARROW = "abcekKsSiI 1_.-\t\r\x0b\x1c\0"
WIDE = NARROW + "\xe9\xc9\xdf\u017f\u212a\u03a3\u03c3\u03c2\U0001f600\xe0\xfc\u0130\u0131\ufb01\x85\u2028\u0660\xb2"
ENDS = ["\n", "\r\n", "\n\n"]
WORDS = ["error", "Error", "kernel", "Kassis", "deadlock", "out of memory", "stra\xdfe", "\u017focket", "\u212aelvin"]
WORDS += ["took 12 ms"]
WORD_ATOMS = [*WORDS, r"\b", r"\d+", ".*", "^", "$", "[xyz]", "[sz]", "(?-i:K)", "(?=e)", r"\r"]

_WRAPPED = ["({})", "(?:|{})", r"({})\1", "(?>{})", "({})?(?(1)a|b)", "(?:{})"]
_PYTHON_SECONDS = 0.3  # for `re` to search all lines of a pair; nested repeats would take it for ever
_SCAN_SECONDS = 20.0  # for scan, when `re` was that fast
_HANGING = 10.0  # seconds beyond its limit after which a search is said to hang
_TEXTS = 3  # with which a pattern is tried: to understand it takes longer than to search for it
_BATCH = 40  # patterns made from one seed
_SHOWN = 20  # pairs that differ

Scanner = Callable[..., ScanResult]


@dataclass
class Tally:
    """What came of a number of pairs; `wrong` describes those that differ."""

    compared: int = 0
    refused: int = 0
    slow: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Include another's."""
        self.compared += other.compared
        self.refused += other.refused
        self.slow += other.slow
        self.wrong += other.wrong


@dataclass(frozen=True)
class Pair:
    """A pattern, a text, and how to search: the flags of scan, and what of the text it is given."""

    pattern: str
    text: str
    how: dict[str, bool]
    source: str

    def reference(self) -> re.Pattern[str]:
        """The pattern as Python means it with these flags.  Raises: what `re.compile` does."""
        meant = re.escape(self.pattern) if self.how["fixed"] else f"(?:{self.pattern})"
        if self.how["word"]:
            edges = [r"\b" if char.isalnum() or char == "_" else "" for char in (self.pattern[:1], self.pattern[-1:])]
            meant = f"{edges[0]}{meant}{edges[1]}" if self.how["fixed"] else rf"\b{meant}\b"
        return re.compile(meant, re.NOFLAG if self.how["case_sensitive"] else re.IGNORECASE)


def random_pairs(rng: random.Random) -> Iterator[Pair]:
    """A pattern with some texts: every other one of single characters, the others of words, which are literals."""
    characters = rng.random() < 0.5
    pattern = (
        _pattern(rng, ATOMS, rng.randrange(1, 7)) if characters else _pattern(rng, WORD_ATOMS, rng.randrange(1, 9))
    )
    how = {name: rng.random() < 0.15 for name in ("case_sensitive", "fixed", "word", "invert")}
    for _ in range(_TEXTS):
        text = _characters(rng) if characters else _words(rng)
        if rng.random() < 0.01:  # more than one block of a search
            rows = text.split("\n")
            text = "\n".join(rng.choice(rows) for _ in range(6000))
        yield Pair(pattern, text, how, rng.choice(["text", "text", "string", "lines", "list"]))


def _pattern(rng: random.Random, atoms: list[str], leaves: int) -> str:
    if leaves <= 1:
        body = rng.choice(atoms)
    else:
        left = rng.randrange(1, leaves)
        parts = _pattern(rng, atoms, left), _pattern(rng, atoms, leaves - left)
        body = "".join(parts) if rng.random() < 0.6 else f"(?:{'|'.join(parts)})"
    if rng.random() < 0.25:
        body = rng.choice(_WRAPPED).format(body)
    return f"(?:{body}){rng.choice(SUFFIXES)}" if rng.random() < 0.25 else body


def _characters(rng: random.Random) -> str:
    alphabet = rng.choice([NARROW, WIDE])
    return "".join(rng.choice(ENDS if rng.random() < 0.2 else alphabet) for _ in range(rng.randrange(26)))


def _words(rng: random.Random) -> str:
    known = [*WORDS, *map(str.upper, WORDS), "error error", "x", "17"]
    lines = [" ".join(rng.choices(known, k=rng.randrange(5))) for _ in range(rng.randrange(13))]
    return rng.choice(["\n", "\r\n"]).join(lines)


def check(pair: Pair, tally: Tally, rng: random.Random, scanner: Scanner = scan) -> None:
    """Compare one pair."""
    lines = split_lines(pair.text)
    try:
        regex = pair.reference()
        with interrupting(_PYTHON_SECONDS):
            wanted = [at for at, line in enumerate(lines) if (regex.search(line) is None) == pair.how["invert"]]
    except (re.error, OverflowError, RecursionError, MemoryError, SystemError):
        tally.refused += 1
    except Expired:
        tally.slow += 1
        tally.wrong += _hangs(pair, scanner)
    else:
        tally.compared += 1
        problem = _difference(pair, lines, wanted, scanner) or _missed(pair, regex, wanted, rng)
        tally.wrong += [f"{problem}: {pair!r}"] if problem else []


def _source(pair: Pair) -> Any:
    text = Text.from_bytes(pair.text.encode())
    known = {"text": text, "string": pair.text, "lines": Lines(text), "list": split_lines(pair.text)}
    return known[pair.source]


def _difference(pair: Pair, lines: list[str], wanted: list[int], scanner: Scanner) -> str | None:
    """How a search is not what it should be, the first page and the count of all."""
    most = 200
    try:
        found = scanner(_source(pair), pair.pattern, max_matches=most, seconds=_SCAN_SECONDS, **pair.how)
        total = scanner(
            _source(pair), pair.pattern, max_matches=1, seconds=_SCAN_SECONDS, count_seconds=_SCAN_SECONDS, **pair.how
        )
    except (InvalidRegex, ScanTimeout) as problem:
        return f"scan raises {problem!r}"
    shown = [(match.line, match.text) for match in found.matches]
    if shown != [(at, lines[at]) for at in wanted[:most]]:
        return f"scan finds the lines {[at for at, _ in shown]}, re {wanted[:most]}"
    if found.truncated != (len(wanted) > most):
        return f"truncated is {found.truncated}, there are {len(wanted)}"
    if total.total != len(wanted) if total.exact else pair.source != "list":
        return f"scan counts {total.total}, re {len(wanted)}"
    return None


def _missed(pair: Pair, regex: re.Pattern[str], wanted: list[int], rng: random.Random) -> str | None:
    """Whether a line that matches holds none of the literals that are looked for, whatever sample chose them."""
    needles = needles_for(regex, pair.text.isascii())
    if needles is None or pair.how["invert"]:
        return None
    text = Text.from_bytes(pair.text.encode())
    for chosen in (needles, needles.tuned(rng.randbytes(64)), needles.tuned(pair.text.encode())):
        hits = {text.index.line_of(at) for _, at, _ in chosen.program.find_matches_as_indexes(text.view)}
        if not (hits == set(wanted) if chosen.pure else hits >= set(wanted)):
            return f"the needles lead to the lines {sorted(hits)}, re to {wanted}"
    return None


def _hangs(pair: Pair, scanner: Scanner) -> list[str]:
    """What is too slow for `re` may be too slow for scan, but is given up in time."""
    started = time.monotonic()
    try:
        scanner(_source(pair), pair.pattern, seconds=_PYTHON_SECONDS, **pair.how)
    except ScanTimeout:
        pass
    except InvalidRegex as problem:
        return [f"scan raises {problem!r}: {pair!r}"]
    return [f"scan hangs: {pair!r}"] if time.monotonic() - started > _PYTHON_SECONDS + _HANGING else []


def batch(seed: str, scanner: Scanner = scan) -> Tally:
    """Compare the pairs that a seed gives."""
    rng, tally = random.Random(seed), Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_BATCH):
            for pair in random_pairs(rng):
                check(pair, tally, rng, scanner)
    return tally


def batches(seed: int, jobs: int) -> Iterator[Tally]:
    """Tallies of one batch after the other, without an end, made in several processes."""
    wave = 8 * jobs
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        for first in count(0, wave):
            yield from pool.map(batch, (f"{seed}/{number}" for number in range(first, first + wave)))


def main() -> int:
    """Compare, tell how far it is, and return 1 when something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)), help="of a run to repeat")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    print(f"seed {given.seed}, {given.pairs:,} pairs, {given.jobs} processes", flush=True)
    total, started, told = Tally(), time.monotonic(), time.monotonic()
    for tally in batches(given.seed, given.jobs):
        total.add(tally)
        if total.compared >= given.pairs:
            break
        if time.monotonic() - told > 15:
            told = time.monotonic()
            print(f"  {total.compared:,} pairs compared, {len(total.wrong)} wrong", flush=True)
    print("\n".join(total.wrong[:_SHOWN]))
    print(
        f"{total.compared:,} pairs compared in {time.monotonic() - started:.0f} s: {len(total.wrong)} wrong; besides"
        f" {total.refused:,} patterns that Python refuses, {total.slow:,} on which it takes too long"
    )
    return int(bool(total.wrong))


if __name__ == "__main__":
    sys.exit(main())
