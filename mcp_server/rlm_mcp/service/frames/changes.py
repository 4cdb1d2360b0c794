"""Notifies followers of changed frames, after the transaction, and only once for a burst of changes.

A client follows what it can read, so that it is notified exactly when it would read something else: the tree, a frame's
context, its log. Without followers nothing is checked, and without changes to frames only the state of the tables.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.service.after_changes import look_after_changes
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.frames.logs import FrameLogs
from rlm_memory.errors import StoreFault, UnknownFrame
from rlm_memory.frames import context, rows
from rlm_memory.frames.survey import state_of_all, state_of_tree
from rlm_memory.store import Store

log = logging.getLogger(__name__)

MOST_FOLLOWED = 50
"""How many parts one client may follow: each costs half a millisecond after a change."""
_MOST_AT_ONCE = 500
"""How many parts all clients may follow."""
_PAUSE_SECONDS = 0.05
"""How long changes are collected before a notification."""


@dataclass(frozen=True, slots=True)
class Part:
    """What can be read of frames; ``frame`` is an id, empty for the tree."""

    what: Literal["tree", "context", "log"]
    frame: str = ""


@dataclass(eq=False)
class _Follower:
    tree: str
    tokens: int
    seen: dict[Part, object]
    tell: Callable[[Part], None]


class FrameChanges:
    """Notifies the followers of parts of a tree which of them have changed."""

    def __init__(self, store: Store, logs: FrameLogs) -> None:
        self._store, self._logs = store, logs
        self._followers: set[_Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._tables: Mapping[str, int] | None = None

    def follow(self, tree: str, parts: Sequence[Part], tokens: int, tell: Callable[[Part], None]) -> Callable[[], None]:
        """Call ``tell`` with each changed part from now on. Return a function that ends this.

        ``tokens`` is the length of the contexts that this follower reads.

        Raises:
            ToolFault: too many parts are followed.
        """
        followed = sum(len(follower.seen) for follower in self._followers)
        if len(parts) > MOST_FOLLOWED or followed + len(parts) > _MOST_AT_ONCE:
            most = f"{MOST_FOLLOWED} resources of one client and {_MOST_AT_ONCE} of all"
            raise ToolFault(
                "too_many_subscriptions", f"at most {most} can be followed", "unsubscribe from others first"
            )
        follower = _Follower(tree, tokens, {}, tell)
        with self._store.transaction():
            follower.seen.update((part, self._state(tree, part, tokens)) for part in parts)
        self._followers.add(follower)
        if self._task is None:
            self._task = asyncio.create_task(look_after_changes(self._store, self._look, pause=_PAUSE_SECONDS))

        def leave() -> None:
            self._followers.discard(follower)
            if not self._followers:
                self.close()

        return leave

    def close(self) -> None:
        """Stop all notifications."""
        self._followers.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = self._tables = None

    def _look(self) -> bool:
        """Notify changes since the last check. Return whether no fault stopped it."""
        try:
            with self._store.transaction():
                state = state_of_all(self._store)
                news = [] if state == self._tables else self._news()
        except StoreFault:
            log.warning("cannot look for changes of frames that clients follow", exc_info=True)
            return False
        self._tables = state
        for follower, part in news:
            follower.tell(part)
        return True

    def _news(self) -> list[tuple[_Follower, Part]]:
        news = []
        known: dict[tuple[str, Part, int], object] = {}
        for follower in self._followers:
            for part, seen in follower.seen.items():
                key = follower.tree, part, follower.tokens
                if key not in known:
                    known[key] = self._state(*key)
                if known[key] != seen:
                    follower.seen[part] = known[key]
                    news.append((follower, part))
        return news

    def _state(self, tree: str, part: Part, tokens: int) -> object:
        """Return a value that is equal while the part reads the same; None while it cannot be read."""
        if part.what == "tree":
            return state_of_tree(self._store, tree)
        try:
            row = rows.get(self._store, rows.frame_key(part.frame))
        except UnknownFrame:
            return None
        if row.tree != tree:
            return None
        if part.what == "context":
            return hash(context.assemble(self._store, row.key, tokens=tokens))
        try:
            found = self._logs.log(row.id).stat()
        except OSError:
            return None
        return row.log, found.st_mtime_ns, found.st_size
