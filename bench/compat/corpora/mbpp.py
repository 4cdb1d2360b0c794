"""MBPP: some 970 short functions with three assertions each.

No package ships it, so it is read from the file as its authors publish it, mbpp.jsonl, where RLM_COMPAT_MBPP says.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from cases import Case, Corpus

PATH = Path(os.environ.get("RLM_COMPAT_MBPP", "mbpp.jsonl")).resolve()


def read() -> Iterator[Case]:
    """Each problem's reference solution, then its assertions."""
    for line in PATH.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        tests = "\n".join([row.get("test_setup_code") or "", *row["test_list"], *row["challenge_test_list"]])
        yield Case(f"MBPP/{row['task_id']}", (row["code"], f"{tests}\nprint('passed')"))


CORPUS = Corpus(
    "MBPP",
    "no package has it: name its mbpp.jsonl in RLM_COMPAT_MBPP",
    "default",
    read,
    module=str(PATH),
)
