"""When each file was last changed, by the newest commits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rlm_lock.listing import git

__all__ = ["History", "read_history"]

MOST_COMMITS = 2_000
_SECONDS = 20.0
_HASH = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(slots=True)
class History:
    """What the newest commits say.

    Attributes:
        head: the commit that it begins with.
        times: when the newest of them that changed a path was made, in seconds; older files have none.
    """

    head: str = ""
    times: dict[bytes, int] = field(default_factory=dict)


def read_history(root: bytes, head: str) -> Iterator[History | None]:
    """Yield None while git works, then what it says; of a long history the newest part."""
    command = git.log(root, MOST_COMMITS)
    while not command.is_over(0.05, _SECONDS):
        yield None
    yield _parsed(command.output(0.0).data, head)


def _parsed(data: bytes, head: str) -> History:
    found = History(head)
    parts = data.split(b"\0")
    at, time = 0, 0
    while at < len(parts):
        # Names are never empty: two empty parts and a hash begin a commit.
        if not parts[at] and at + 6 < len(parts) and not parts[at + 1] and _HASH.fullmatch(parts[at + 2]):
            time = int(parts[at + 3]) if parts[at + 3].isdigit() else 0
            at += 6
            continue
        if path := parts[at].removeprefix(b"\n"):
            found.times.setdefault(path, time)
        at += 1
    return found
