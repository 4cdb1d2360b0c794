"""The queue for a person: of every tree, by id, without a session, with ``page`` as author."""

from __future__ import annotations

from collections.abc import Callable

from rlm_ipc.messages import JsonObject, plain
from rlm_mcp.service.holders import Holders
from rlm_memory.frames import rows
from rlm_memory.frames.rows import FrameRow
from rlm_memory.store import Store
from rlm_memory.work import board, items, leases, ready
from rlm_memory.work.board import Board, Card

_AUTHOR = "page"
_MOST_STUCK = 5


class WorkByHand:
    """A person's requests; each verb raises what the tool of that name does."""

    def __init__(self, store: Store, live: Holders, clock: Callable[[], float]) -> None:
        self._store, self._holders, self._clock = store, live, clock

    def viewer(self) -> BoardViewer:
        """Return a follower of the board."""
        return BoardViewer(self._store, self._clock)

    async def claim(self, frame: str, seconds: float, steal: str | None) -> JsonObject:
        """Claim a task for a time; with a reason, steal it from its holder."""
        row = self._get(frame)
        if steal is None:
            leases.check_ready(self._store, row.key)
        with self._store.transaction():
            holder, _ = self._holders.for_time(seconds, _AUTHOR, "")
            now = self._clock()
            if steal is None:
                taken = leases.claim(self._store, holder, row.tree, now=now, key=row.key)
            else:
                taken = leases.steal(self._store, row.key, holder, now=now, why=steal)
            assert taken is not None
        return {"claimed": taken.frame, "fence": taken.fence, "attempt": taken.fence}

    async def release(self, frame: str) -> JsonObject:
        """Take a task from its holder, and return it to the queue."""
        row = self._get(frame)
        leases.release(self._store, row.key, None, now=self._clock(), author=_AUTHOR)
        return {"released": row.id}

    async def set_priority(self, frame: str, priority: int) -> JsonObject:
        """Change the priority of a task, story or epic."""
        row = self._get(frame)
        items.set_priority(self._store, row.key, priority, author=_AUTHOR, now=self._clock())
        return {"changed": row.id, "priority": priority}

    def _get(self, frame: str) -> FrameRow:
        return rows.get(self._store, rows.frame_key(frame))


class BoardViewer:
    """Follows the board, and returns only changes."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._told: dict[str, Card] = {}
        self._besides: JsonObject = {}
        self._seen: object = None

    def look(self) -> JsonObject | None:
        """Return cards that are new or have changed, and ids that are gone; None: no news.

        ``whole`` says that these are all cards. Conflicts, roots and stuck frames come completely if they have changed.
        """
        seen = board.newest(self._store), board.held(self._store, now=self._clock())
        if seen == self._seen:
            return None
        first, self._seen = self._seen is None, seen
        now = board.read(self._store, now=self._clock())
        cards = [plain(card) for frame, card in now.cards.items() if self._told.get(frame) != card]
        gone = [frame for frame in self._told if frame not in now.cards]
        besides: JsonObject = {
            "conflicts": [plain(one) for one in now.conflicts],
            "roots": dict(now.roots),
            "stuck": self._stuck(now),
        }
        self._told = dict(now.cards)
        if not (first or cards or gone) and besides == self._besides:
            return None
        said = {name: part for name, part in besides.items() if self._besides.get(name) != part}
        self._besides = besides
        return {"whole": first, "cards": cards, "gone": gone, **said}

    def _stuck(self, now: Board) -> list[JsonObject]:
        """Return what a stuck tree waits for."""
        moving = {card.root for card in now.cards.values() if card.state in {"ready", "in_progress", "stale"}}
        return [
            {"root": root, **plain(one)}
            for root, tree in now.roots.items()
            if root not in moving
            for one in ready.stuck(self._store, tree)[:_MOST_STUCK]
        ]
