"""Small faults put into the code that matters, one at a time, to see whether the tests notice each.

    python tests/support/mutants.py [AREA...] [--sample 40] [--seed 1] [--list]

As a program (`make mutants`) it works in a copy of the tree with an environment of its own: the checkout is never
touched. An area is a few modules and the tests that are to hold them. A mutant that these tests notice, or that makes
them hang, is killed; one that they pass has survived, and is named with its line. What no test can tell from the
original stands in `EQUIVALENT`, with the reason, and counts for nothing.
"""

import argparse
import ast
import copy
import ctypes
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import psutil
from mutants_areas import AREAS, EQUIVALENT, Area

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("ipc", "sandbox", "memory", "contexts", "lock", "client", "kernel", "mcp_server")
_SET_CHILD_SUBREAPER = 36
_PATIENCE = 3.0  # times as long as the tests take without a fault
_SECONDS_MORE = 20.0
_TIMES = count(int(time.time()))

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_SILENT = ("log",)
"""Objects whose calls nothing depends on."""


@dataclass(frozen=True)
class Mutant:
    """One fault: the text from ``start`` to ``end`` of the module at ``path`` replaced by ``after``."""

    path: str
    function: str
    line: int
    start: int
    end: int
    after: str
    before_line: str
    after_line: str

    @property
    def name(self) -> str:
        """What it is called in `EQUIVALENT`: the same however far the module moves."""
        return f"{self.path}:{self.function}: {self.before_line} -> {self.after_line}"

    def apply(self, source: str) -> str:
        """The module with the fault."""
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a module: those of the code that runs, not of annotations, messages and texts."""

    def __init__(self, path: str, source: str) -> None:
        self.found: list[Mutant] = []
        self._path = path
        self._source = source.encode()
        lines = source.encode().splitlines(keepends=True)
        self._starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]
        self._within: list[str] = []

    def _add(self, node: ast.expr | ast.stmt, after: str) -> None:
        start, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno or 0, node.end_col_offset or 0)
        line, rest = self._at(node.lineno, 0), self._at((node.end_lineno or 0) + 1, 0)
        before, middle, behind = (self._source[i:j].decode() for i, j in ((line, start), (start, end), (end, rest)))
        lines = (" ".join((before + text + behind).split()) for text in (middle, after))
        self.found.append(Mutant(self._path, ".".join(self._within), node.lineno, start, end, after, *lines))

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _changed(self, node: ast.expr | ast.stmt, **fields: object) -> None:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        written = ast.unparse(other)
        self._add(node, f"({written})" if isinstance(node, ast.expr) else written)

    # -- what is passed over

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._within.append(node.name)
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self.visit(default)
        self._body(node.body)
        self._within.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._within.append(node.name)
        self._body(node.body)
        self._within.pop()

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A sentence: nothing is decided by it."""

    def visit_Import(self, node: ast.Import) -> None:
        """Without it nothing runs."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """As above."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """What is said to the type checker."""

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self._condition(node.test)
        self.generic_visit(node)

    # -- what is changed

    def _condition(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
            self._add(test, f"(not ({ast.unparse(test)}))")

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            changed = [*node.ops[:place], _SWAPPED[type(operator)](), *node.ops[place + 1 :]]
            self._changed(node, ops=changed)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._changed(node, op=_SWAPPED[type(node.op)]())
        if len(node.values) > 2:
            for place in range(len(node.values)):
                self._changed(node, values=node.values[:place] + node.values[place + 1 :])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self._add(node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
        if type(node.op) in _SWAPPED and not texts:
            self._changed(node, op=_SWAPPED[type(node.op)]())
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, repr(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, f"({node.value!r} + 1)")
            self._add(node, f"({node.value!r} - 1)")

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass")
        self._add(node, f"{ast.unparse(node.target)} = {ast.unparse(node.value)}")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func).partition(".")[0] not in _SILENT:
            self._add(node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        name = ast.unparse(node.targets[0])
        if name == "__all__" or name.endswith("_SECONDS"):  # how long something waits is asserted nowhere
            return
        if self._within and all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and ast.unparse(node.value) not in ("None", "True", "False"):
            self._add(node, "return None")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "pass")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Every mutant of a module."""
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return list(dict.fromkeys(finder.found))


def mutants_in(area: Area, root: Path = ROOT) -> Iterator[Mutant]:
    """Every mutant of an area, those that are known to be equivalent among them."""
    for place in area.sources:
        path, _, chosen = place.partition(":")
        functions = tuple(filter(None, chosen.split(",")))
        for mutant in mutants_of(path, (root / path).read_text()):
            if not functions or mutant.function.startswith(functions):
                yield mutant


class Copy:
    """A copy of the tree, and an environment whose packages are those of this one and the code of the copy."""

    def __init__(self, folder: Path) -> None:
        self.tree = folder / "tree"
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        compiled = [str(path.relative_to(ROOT)) for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.so")]
        for name in [*filter(None, listed.split("\0")), *compiled]:
            if (ROOT / name).is_file():
                (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.tree / name)
        venv.create(folder / "env", symlinks=True)
        self.python = folder / "env" / "bin" / "python"
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        own, theirs = (
            subprocess.check_output([p, "-c", ask], text=True).strip() for p in (self.python, sys.executable)
        )
        roots = [str(self.tree / root) for root in SOURCE_ROOTS]
        (Path(own) / "tree.pth").write_text("\n".join([*roots, theirs]))
        program = self.python.with_name("rlm-kernel")
        program.write_text(f"#!{self.python}\nfrom rlm_mcp.__main__ import main\nraise SystemExit(main())\n")
        program.chmod(0o755)

    def write(self, path: str, source: str) -> None:
        """Put a module in, and see to it that nobody takes what was compiled of the one before for its own."""
        place = self.tree / path
        place.write_text(source)
        os.utime(place, times=(next(_TIMES),) * 2)
        Path(importlib.util.cache_from_source(str(place))).unlink(missing_ok=True)

    def passes(self, tests: Sequence[str], seconds: float | None) -> bool:
        """Whether the tests pass in that time; whatever they leave behind is ended."""
        command = [self.python, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, cwd=self.tree, start_new_session=True, text=True, **quiet)  # type: ignore[call-overload]
        try:
            self.said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.said = "timeout"
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        _end_children()
        return bool(process.returncode == 0)


def _end_children() -> None:
    """End what the tests have left: with them gone it is ours."""
    while children := psutil.Process().children(recursive=True):
        for child in children:
            child.kill()
        psutil.wait_procs(children, timeout=10)


@dataclass
class Tally:
    """What came of the mutants of an area."""

    killed: int = 0
    survived: list[Mutant] = field(default_factory=list)
    equivalent: int = 0

    @property
    def share(self) -> str:
        """How many of those that could be told from the original were killed."""
        tried = self.killed + len(self.survived)
        return f"{self.killed / tried:.0%}" if tried else "-"

    @property
    def row(self) -> str:
        """The numbers of the table."""
        return f"{self.killed:>6} {len(self.survived):>8} {self.equivalent:>10} {self.share:>6}"


def examine(area: str, copied: Copy, sample: int | None, seed: int) -> Tally:
    """Try the mutants of an area, or a sample of them, against its tests."""
    tests = AREAS[area].tests
    began = time.monotonic()
    if not copied.passes(tests, None):
        sys.exit(f"the tests of {area} fail without a mutation:\n{copied.said}")
    took = time.monotonic() - began
    found = list(mutants_in(AREAS[area], copied.tree))
    chosen = found if sample is None else random.Random(seed).sample(found, min(sample, len(found)))
    print(f"{area}: {len(chosen)} of {len(found)} mutants, {took:.1f} s of tests", flush=True)
    tally = Tally()
    for mutant in sorted(chosen, key=lambda one: (one.path, one.start)):
        if mutant.name in EQUIVALENT:
            tally.equivalent += 1
            continue
        source = (copied.tree / mutant.path).read_text()
        copied.write(mutant.path, mutant.apply(source))
        if copied.passes(tests, took * _PATIENCE + _SECONDS_MORE):
            tally.survived.append(mutant)
            print(f"  survived: {mutant.path}:{mutant.line}: {mutant.name.partition(': ')[2]}", flush=True)
        else:
            tally.killed += 1
        copied.write(mutant.path, source)
    return tally


def main() -> None:
    """Examine the areas that were named, or all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--sample", type=int, default=40, help="mutants of an area; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    given = parser.parse_args()
    areas = given.areas or list(AREAS)
    if unknown := set(areas) - set(AREAS):
        parser.error(f"there is no area {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")
    if given.list:
        print("\n".join(mutant.name for area in areas for mutant in mutants_in(AREAS[area])))
        return
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    tallies: dict[str, Tally] = {}
    with tempfile.TemporaryDirectory(prefix="rlm-mutants-") as folder, ExitStack() as at_the_end:
        at_the_end.callback(_end_children)
        os.chmod(folder, 0o755)  # processes that are confined as another user read the tree
        copied = Copy(Path(folder))
        for area in areas:
            tallies[area] = examine(area, copied, given.sample or None, given.seed)
            print(f"  {tallies[area].share} killed", flush=True)
    print(f"\n{'area':<12} {'killed':>6} {'survived':>8} {'equivalent':>10} {'share':>6}")
    for area, tally in tallies.items():
        print(f"{area:<12} {tally.row}")


if __name__ == "__main__":
    main()
