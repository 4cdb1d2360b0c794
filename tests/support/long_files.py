"""The test files that take long, and which of them a run takes.

`tests/long_files.txt` names them, those that take longest first. A process that begins such a file last leaves the
others nothing to do, so a run begins with them.

Together they take nine tenths of the time of all tests. A run that is told its turn takes a quarter of them. In CI the
commit's hash is its turn. So any sequence of commits, however many are pushed at once, takes all quarters equally often
in the long run; a number that counts commits gave the same quarter to every push of four. `make test` takes all.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

TURN: Final = "RLM_TESTS_TURN"
"""The variable that tells a run its turn: any number."""
TURNS: Final = 4
EVERY_TURN: Final = frozenset({
    "escapes/test_corpus.py",  # has turns of its own
    "kernel/supervisor/test_recovery.py",
    "mcp_server/tools/test_code.py",
    "mcp_server/tools/test_loading.py",
    "project/test_docs.py",
})  # fmt: skip
"""What most changes can break: these run with each commit."""
TESTS: Final = Path(__file__).resolve().parent.parent
LONG: Final = tuple(TESTS.joinpath("long_files.txt").read_text(encoding="utf-8").split())
PLACES: Final = {TESTS / name: place for place, name in enumerate(LONG)}


def left_out(turn: str | None) -> Collection[Path]:
    """Return the files that other turns take. They are dealt back and forth, so that all turns take as long."""
    if not turn:
        return ()
    dealt = [name for name in LONG if name not in EVERY_TURN]
    ours = {int(turn) % TURNS, 2 * TURNS - 1 - int(turn) % TURNS}
    return frozenset(TESTS / name for place, name in enumerate(dealt) if place % (2 * TURNS) not in ours)


LEFT_OUT: Final = left_out(os.environ.get(TURN))
"""What this run leaves to others."""
