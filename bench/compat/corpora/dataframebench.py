"""DataFrameBench: 825 problems of BigCodeBench about tables, with pandas solutions and unit tests."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cases import Case, Corpus, folder_of


def read() -> Iterator[Case]:
    """Each problem's pandas solution; its unit tests call it from outside."""
    folder = folder_of("dataframebench") / "data"
    for part in ("val", "test", "train"):
        for line in (folder / f"{part}.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            yield Case(row["task_id"], (row["ground_truth"]["pandas"],), tests=row["test_code"])


CORPUS = Corpus(
    "DataFrameBench",
    "dataframebench",
    "data",
    read,
    preload=("numpy", "pandas", "scipy.stats", "matplotlib.pyplot", "seaborn", "sklearn"),
    module="dataframebench",
)
