"""Examples in the documentation of libraries and of the standard library, and a package of algorithms."""

from __future__ import annotations

import ast
import doctest
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from cases import Case, Corpus, folder_of

from rlm_sandbox.policy import load_policy

_PARSER = doctest.DocTestParser()
_NO_DOCUMENTATION = frozenset({"tests", "test", "testing", "conftest.py", "benchmarks"})


def examples(source: str) -> Iterator[tuple[int, list[str]]]:
    """Line and examples of every text in a module that has some, docstring or not."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and ">>> " in node.value:
            try:
                found = _PARSER.get_examples(node.value)
            except ValueError:
                continue
            kept = [one.source for one in found if not one.options.get(doctest.SKIP)]
            if kept:
                yield node.lineno, kept


def modules_below(root: Path) -> Iterator[tuple[str, str]]:
    """Relative path and text of each module below a folder, its tests left out."""
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if not _NO_DOCUMENTATION.intersection(inside.parts):
            yield inside.as_posix(), path.read_text(encoding="utf-8", errors="replace")


def library(package: str, setup: str) -> Callable[[], Iterator[Case]]:
    """Reads the documentation of a library; ``setup`` is what its pages take for granted."""

    def read() -> Iterator[Case]:
        for name, text in modules_below(folder_of(package)):
            for line, cells in examples(text):
                yield Case(f"{package}/{name}:{line}", (setup, *cells), "single", setup=1)

    return read


def standard_library() -> Iterator[Case]:
    """The examples in those modules of the standard library that the policy admits, with the names of their module."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for name in sorted(sys.stdlib_module_names.intersection(load_policy("default").language.imports)):
        path = root / f"{name}.py"
        if path.is_file():
            for line, cells in examples(path.read_text(encoding="utf-8")):
                yield Case(f"{name}.py:{line}", (f"import {name}", f"from {name} import *", *cells), "single", setup=2)


def whole_modules(label: str, root: Path) -> Iterator[Case]:
    """Each module below a folder as one cell, then the examples in its docstrings."""
    for name, text in modules_below(root):
        cells = [cell for _, found in examples(text) for cell in found]
        if not name.endswith("__init__.py"):
            shown = tuple(f"print(repr(({cell.strip()})))" if _is_expression(cell) else cell for cell in cells)
            yield Case(f"{label}/{name}", (text, *shown))


def algorithms() -> Iterator[Case]:
    """The modules of the package."""
    yield from whole_modules("algorithms", folder_of("algorithms"))


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return False
    return True


_NP = "import numpy as np"
_NX = "import networkx as nx"
OFTEN = ("numpy", "pandas", "matplotlib.pyplot", "scipy.stats")
_SPARSE = ("scipy.sparse.linalg", "scipy.sparse.csgraph", "scipy.optimize", "scipy.linalg")

CORPORA = (
    Corpus("stdlib doctests", "", "default", standard_library),
    Corpus("algorithms", "algorithms", "default", algorithms, module="algorithms"),
    Corpus("numpy docs", "numpy", "data", library("numpy", _NP), (*OFTEN, "numpy.testing"), "numpy"),
    Corpus("pandas docs", "pandas", "data", library("pandas", f"{_NP}; import pandas as pd"), OFTEN, "pandas"),
    Corpus("networkx docs", "networkx", "data", library("networkx", _NX), (*OFTEN, "networkx", *_SPARSE), "networkx"),
    Corpus("scipy docs", "scipy", "data", library("scipy", _NP), (*OFTEN, *_SPARSE), "scipy", on_request=True),
    Corpus(
        "sympy docs", "sympy", "data", library("sympy", "from sympy import *"), ("sympy",), "sympy", on_request=True
    ),
)
