"""The current frame of each client: only in memory, because a client that reconnects names its frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rlm_mcp.service.caller import Caller
from rlm_mcp.service.sessions.names import named_session

_MOST_CLIENTS = 1000
T = TypeVar("T")
Who = tuple[int, str, str, str]
"""The key of a current frame: a client's process, the agent that it names, and the session of its calls.

That session is the one named by the calls, or else the client's own.
"""


class Currents:
    """The current frame of each client, and the frames that it pushed."""

    def __init__(self) -> None:
        self._current: dict[Who, int] = {}
        self._pushed: dict[Who, set[int]] = {}

    def get(self, caller: Caller) -> int | None:
        """Return the current frame of those calls; None: they have none."""
        return self._current.get(_of(caller))

    def put(self, caller: Caller, key: int) -> None:
        """Make a frame the current one of these calls."""
        _put(self._current, _of(caller), key)

    def latest(self, pid: int, agent: str) -> Iterator[int]:
        """Yield the current frames of a client's agent, in all sessions of its calls, then the client's own.

        The latest of each come first.
        """
        for whose in dict.fromkeys((agent, "")):
            yield from [key for who, key in reversed(self._current.items()) if who[:2] == (pid, whose)]

    def pushed(self, caller: Caller) -> Iterable[int]:
        """Return the frames that the client pushed by these calls."""
        return self._pushed.get(_of(caller), ())

    def put_pushed(self, caller: Caller, keys: set[int]) -> None:
        """Note the frame that the client pushed by these calls."""
        _put(self._pushed, _of(caller), keys)

    def move(self, which: Callable[[int], bool], key: int) -> int:
        """Make a frame the current one of all clients whose current frame is one of these. Return their number."""
        moved = [who for who, current in self._current.items() if which(current)]
        self._current.update(dict.fromkeys(moved, key))
        return len(moved)

    def count(self) -> Counter[int]:
        """Count, by frame, the clients whose current frame it is."""
        return Counter(self._current.values())


def _of(caller: Caller) -> Who:
    client = caller.handshake
    where = (caller.session, "") if caller.session else ("", named_session(client) or "")
    return client.pid, client.agent, *where


def _put(told: dict[Who, T], who: Who, what: T) -> None:
    """Note an entry of a client, and forget the clients that were inactive for longest."""
    told.pop(who, None)
    told[who] = what
    while len(told) > _MOST_CLIENTS:
        del told[next(iter(told))]
