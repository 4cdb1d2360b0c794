"""The newest commits: what they were about, what they changed, and when."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from rlm_ipc.late_dataclasses import dataclass
from rlm_lock.listing import git

MOST_COMMITS = 2_000
_SECONDS = 20.0
_LONGEST_SUBJECT = 500
_MOST_PATHS = 30
"""A commit that changes more files says little about any of them."""
_HASH = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Commit:
    """The first line of a commit's message, and the paths that it changed."""

    subject: str
    paths: tuple[bytes, ...]


@dataclass(slots=True)
class History:
    """What the newest commits say.

    Attributes:
        head: the commit that it begins with.
        times: when the newest of them that changed a path was made, in seconds; older files have none.
        commits: newest first, without merges and those that change very many files.
    """

    head: str = ""
    times: dict[bytes, int] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)


def read_history(root: bytes, head: str) -> Iterator[History | None]:
    """Yield None while git works, then the result; for a long history its newest part."""
    command = git.log(root, MOST_COMMITS)
    while not command.is_over(0.05, _SECONDS):
        yield None
    yield _parsed(command.output(0.0).data, head)


def _parsed(data: bytes, head: str) -> History:
    history = History(head)
    parts = data.split(b"\0")
    at, time, subject = 0, 0, ""
    paths: list[bytes] = []
    while at < len(parts):
        # Names are never empty: two empty parts and a hash begin a commit.
        if not parts[at] and at + 6 < len(parts) and not parts[at + 1] and _HASH.fullmatch(parts[at + 2]):
            _add(history.commits, subject, paths)
            time = int(parts[at + 3]) if parts[at + 3].isdigit() else 0
            subject = parts[at + 5][:_LONGEST_SUBJECT].decode("utf-8", "replace")
            paths = []
            at += 6
            continue
        if path := parts[at].removeprefix(b"\n"):
            history.times.setdefault(path, time)
            paths.append(path)
        at += 1
    _add(history.commits, subject, paths)
    return history


def _add(commits: list[Commit], subject: str, paths: list[bytes]) -> None:
    if 0 < len(paths) <= _MOST_PATHS:
        commits.append(Commit(subject, tuple(paths)))
