"""Speed of code compiled by the language wall, relative to plain CPython.

Each kernel is one function, compiled twice from the same text: plainly and through the wall. The figure is
the best of several rounds of CPU time, the two variants taking turns. Run it on a quiet machine:

    python bench/language.py [--rounds 15] [--only "getattr dynamic,type value"]

The status is 1 when a target is missed: a geometric mean of at most 1.12, no kernel above 2.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sandbox"))

from ratio import timed

from rlm_sandbox.language_wall.wall import LanguageWall
from rlm_sandbox.policy import load_policy

MEAN_TARGET, WORST_TARGET = 1.12, 2.0

# Name -> text that defines `kernel()`. Each runs some milliseconds.
KERNELS = {
    "loop": """
def kernel():
    total = 0
    for i in range(100_000):
        if i % 3:
            total += i * 2
    return total
""",
    "dict": """
def kernel():
    counts = {}
    for word in ["to", "be", "or", "not", "to", "be"] * 10_000:
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])
""",
    "string": """
def kernel():
    parts = []
    for i in range(30_000):
        parts.append(f"{i:05d}".strip("0").upper() + "x")
    return " ".join(parts).split(" ")[-1]
""",
    "public attribute": """
class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y
    def norm(self):
        return self.x * self.x + self.y * self.y
def kernel():
    points = [Point(i, i + 1) for i in range(10_000)]
    return sum(point.norm() for point in points) + sum(point.x for point in points)
""",
    "private attribute": """
class Stack:
    def __init__(self):
        self._items = []
        self._count = 0
    def push(self, item):
        self._items.append(item)
        self._count += 1
    def _top(self):
        return self._items[self._count - 1]
    def top(self):
        return self._top()
def kernel():
    stack = Stack()
    for i in range(20_000):
        stack.push(i)
        stack.top()
    return stack.top()
""",
    "private attribute of another": """
class Node:
    __slots__ = ("_next", "_value")
    def __init__(self, value, following):
        self._value = value
        self._next = following
def kernel():
    head = None
    for i in range(10_000):
        head = Node(i, head)
    total = 0
    while head is not None:
        total += head._value
        head = head._next
    return total
""",
    "augmented assignment": """
class Account:
    def __init__(self):
        self.balance = 0
        self.log = [0] * 10
def kernel():
    account = Account()
    table = {"a": 0}
    for i in range(30_000):
        account.balance += i
        account.log[i % 10] += 1
        table["a"] += i
    return account.balance
""",
    "attribute store": """
class Cell:
    pass
def kernel():
    cell = Cell()
    for i in range(50_000):
        cell.value = i
    return cell.value
""",
    "comprehension": """
def kernel():
    rows = [[i * j for j in range(50)] for i in range(500)]
    return sum(value for row in rows for value in row if value % 2) + len({v for row in rows for v in row})
""",
    "nested indexing": """
def kernel():
    grid = [[0] * 100 for _ in range(100)]
    for i in range(100):
        for j in range(100):
            grid[i][j] = grid[i - 1][j] + grid[i][j - 1] + 1
    return grid[99][99]
""",
    "regex": """
import re
LINES = ["2026-01-01 ERROR disk full at node %d" % i for i in range(5_000)]
PATTERN = re.compile(r"(\\d+)-(\\d+)-(\\d+) (\\w+) (.*)")
def kernel():
    found = 0
    for line in LINES:
        match = PATTERN.match(line)
        if match and match.group(4) == "ERROR":
            found += len(match.groups())
    return found
""",
    "format literal": """
def kernel():
    return [len("{} of {:>5} is {name}".format(i, i * 2, name="x")) for i in range(20_000)][-1]
""",
    "format variable": """
def kernel():
    template = "{} of {:>5} is {name}"
    total = 0
    for i in range(20_000):
        total += len(template.format(i, i * 2, name="x"))
    return total
""",
    "getattr dynamic": """
class Row:
    def __init__(self):
        self.a, self.b, self.c = 1, 2, 3
def kernel():
    row = Row()
    total = 0
    for i in range(10_000):
        for name in ("a", "b", "c"):
            total += getattr(row, name)
    return total
""",
    "getattr default": """
class Row:
    a = 1
def kernel():
    row = Row()
    return sum([getattr(row, "a", 0) + getattr(row, "z", 1) for i in range(20_000)])
""",
    "visitor": """
class Visitor:
    def visit(self, node):
        return getattr(self, f"visit_{node[0]}", self.other)(node)
    def visit_num(self, node):
        return node[1]
    def visit_add(self, node):
        return self.visit(node[1]) + self.visit(node[2])
    def other(self, node):
        return 0
def kernel():
    tree = ("num", 1)
    for i in range(12):
        tree = ("add", tree, tree) if i < 9 else ("add", tree, ("num", i))
    return Visitor().visit(tree)
""",
    "type compare": """
def kernel():
    values = [1, "a", 2.0, None, [3]] * 5_000
    ints = 0
    for value in values:
        if type(value) is int:
            ints += 1
        elif type(value) == str:
            ints += 2
    return ints
""",
    "type value": """
def kernel():
    values = [1, "a", 2.0, None, [3]] * 5_000
    counts = {}
    for value in values:
        kind = type(value)
        counts[kind] = counts.get(kind, 0) + 1
    return sorted(type(value).__name__ for value in values)[0]
""",
    "exception": """
def kernel():
    failed = 0
    for i in range(20_000):
        try:
            if i % 2:
                raise ValueError(i)
        except ValueError as error:
            failed += error.args[0]
    return failed
""",
    "json and datetime": """
import json
from datetime import datetime, timedelta
def kernel():
    start = datetime(2026, 1, 1)
    rows = [{"at": (start + timedelta(hours=i)).isoformat(), "n": i} for i in range(3_000)]
    return len(json.loads(json.dumps(rows)))
""",
    "dataclass": """
from dataclasses import dataclass
@dataclass
class Item:
    name: str
    price: float
    _cached: float = 0.0
    def total(self, n):
        self._cached = self.price * n
        return self._cached
def kernel():
    items = [Item(str(i), i * 1.5) for i in range(5_000)]
    return sum(item.total(3) for item in items)
""",
    "match": """
def kernel():
    total = 0
    for shape in [("circle", 1), ("square", 2), {"side": 3}, [4, 5]] * 5_000:
        match shape:
            case ("circle", r):
                total += r
            case {"side": s}:
                total += s
            case [a, b]:
                total += 1
    return total
""",
}

LIBRARY_KERNELS = {
    "numpy loop": """
import numpy as np
def kernel():
    values = np.arange(5_000)
    total = 0
    for value in values:
        total += value
    return int(total)
""",
    "numpy vector": """
import numpy as np
def kernel():
    values = np.linspace(0, 1, 50_000)
    for _ in range(20):
        values = np.sqrt(values * values + 1) - values.mean()
    return float(values.sum())
""",
    "pandas groupby": """
import pandas as pd
FRAME = pd.DataFrame({"key": ["a", "b", "c"] * 2_000, "value": range(6_000)})
def kernel():
    return int(FRAME.groupby("key")["value"].sum().max()) + int(FRAME[FRAME["value"] > 10].value.mean())
""",
    "pandas iterrows": """
import pandas as pd
FRAME = pd.DataFrame({"a": range(300), "b": range(300)})
def kernel():
    return sum(row["a"] + row.b for _, row in FRAME.iterrows())
""",
}


def plain(source: str) -> Callable[[], Any]:
    """The kernel as CPython compiles it."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<kernel>", "exec"), namespace)  # the point of the comparison
    return namespace["kernel"]  # type: ignore[no-any-return]


def walled(source: str, wall: LanguageWall) -> Callable[[], Any]:
    """The kernel as the wall compiles it."""
    namespace: dict[str, Any] = {}
    code: CodeType = wall.compile(source, "<kernel>", "exec")
    wall.prepare(namespace)
    with wall.user():
        exec(code, namespace)  # compiled by the wall
    return namespace["kernel"]  # type: ignore[no-any-return]


def seconds(function: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    start = time.thread_time()
    function()
    return time.thread_time() - start


def ratio(source: str, wall: LanguageWall, rounds: int) -> float:
    """CPU time through the wall over CPU time without it; the audit hook is armed as in a kernel."""
    bare, guarded = plain(source), walled(source, wall)
    with wall.user():
        if bare() != guarded():
            raise SystemExit(f"different results:\n{source}")
    best = [math.inf, math.inf]
    gc.disable()
    for _ in range(rounds):
        best[0] = min(best[0], seconds(bare))
        with wall.user():
            best[1] = min(best[1], seconds(guarded))
    gc.enable()
    return best[1] / best[0]


def compile_microseconds(wall: LanguageWall, source: str, rounds: int = 300) -> tuple[float, float]:
    """Microseconds to compile ``source`` plainly and through the wall (medians)."""

    def median(compiler: Callable[..., object]) -> float:
        return statistics.median(timed(lambda: compiler(source, "<cell>", "exec")) for _ in range(rounds)) * 1e6

    return median(compile), median(wall.compile)


def measured(wall: LanguageWall, chosen: set[str], rounds: int) -> dict[str, float]:
    """Ratio by kernel (all of them when nothing is chosen), printed as they come."""
    kernels = dict(KERNELS)
    if all(name in sys.modules for name in ("numpy", "pandas")):
        kernels |= LIBRARY_KERNELS
    else:
        print("numpy and pandas are not installed: their kernels are left out")
    if unknown := chosen - kernels.keys():
        raise SystemExit(f"no such kernel: {', '.join(sorted(unknown))}; there are {', '.join(kernels)}")
    ratios = {}
    for name in [name for name in kernels if not chosen or name in chosen]:
        ratios[name] = ratio(kernels[name], wall, rounds)
        print(f"{name:30}{ratios[name]:6.2f} x", flush=True)
    return ratios


def verdict(ratios: dict[str, float]) -> bool:
    """Print the two figures beside their targets; True when both are met."""
    mean, worst = statistics.geometric_mean(ratios.values()), max(ratios, key=lambda name: ratios[name])
    met = mean <= MEAN_TARGET and ratios[worst] <= WORST_TARGET
    print(f"{'geometric mean':30}{mean:6.3f} x  (target: at most {MEAN_TARGET} x)")
    print(f"{'worst: ' + worst:30}{ratios[worst]:6.2f} x  (target: at most {WORST_TARGET} x)")
    print(f"target {'met' if met else 'MISSED'} over {len(ratios)} kernels")
    return met


def main() -> int:
    """Print a table and the verdict; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each variant, of which the best counts")
    parser.add_argument("--only", default="", help="names of kernels, separated by commas")
    options = parser.parse_args()
    policy = load_policy("data")
    print(f"preload {timed(lambda: LanguageWall.preload(policy)) * 1e3:8.1f} ms")
    start = time.perf_counter()
    wall = LanguageWall(policy)
    print(f"wall    {(time.perf_counter() - start) * 1e3:8.2f} ms")
    ratios = measured(wall, {name for name in options.only.split(",") if name}, options.rounds)
    for name, source in (("1+1", "1+1"), ("a class", KERNELS["private attribute"])):
        bare, guarded = compile_microseconds(wall, source)
        print(f"compile {name:22}{bare:8.0f} us plain {guarded:8.0f} us walled")
    return 0 if verdict(ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
