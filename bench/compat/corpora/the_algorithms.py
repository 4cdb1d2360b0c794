"""TheAlgorithms/Python: some 1,300 modules, each with examples in its docstrings.

No package ships it, so it is read from a checkout, where RLM_COMPAT_THE_ALGORITHMS says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cases import Case, Corpus
from corpora.doctests import whole_modules

PATH = Path(os.environ.get("RLM_COMPAT_THE_ALGORITHMS", "TheAlgorithms")).resolve()


def read() -> Iterator[Case]:
    """Each module as one cell, then its examples."""
    yield from whole_modules("TheAlgorithms", PATH)


CORPUS = Corpus(
    "TheAlgorithms",
    "no package has it: name a checkout in RLM_COMPAT_THE_ALGORITHMS",
    "data",
    read,
    preload=("numpy",),
    module=str(PATH / "DIRECTORY.md"),
)
