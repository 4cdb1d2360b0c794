"""Which frame is current for whom: in memory only, because a client that comes again names what it works for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rlm_mcp.service.caller import Caller
from rlm_mcp.service.sessions.names import named_session

_MOST_CLIENTS = 1000
T = TypeVar("T")
Who = tuple[int, str, str, str]
"""Who has a current frame: a client's process, the agent that it names, and the session of its calls.

That is the one that they name, or else the one that the client was started in.
"""


class Currents:
    """The current frame of each client, and the frames that it has pushed."""

    def __init__(self) -> None:
        self._current: dict[Who, int] = {}
        self._pushed: dict[Who, set[int]] = {}

    def get(self, caller: Caller) -> int | None:
        """Return the current frame of those calls; None: they have none."""
        return self._current.get(_of(caller))

    def put(self, caller: Caller, key: int) -> None:
        """Make a frame the current one of those calls."""
        _put(self._current, _of(caller), key)

    def latest(self, pid: int, agent: str) -> Iterator[int]:
        """Yield the current frames of a client's agent, whatever sessions its calls named, then the client's own.

        Of each the latest comes first.
        """
        for whose in dict.fromkeys((agent, "")):
            yield from [key for who, key in reversed(self._current.items()) if who[:2] == (pid, whose)]

    def pushed(self, caller: Caller) -> Iterable[int]:
        """Return what the client has pushed by those calls."""
        return self._pushed.get(_of(caller), ())

    def put_pushed(self, caller: Caller, keys: set[int]) -> None:
        """Note what the client has pushed by those calls."""
        _put(self._pushed, _of(caller), keys)

    def move(self, which: Callable[[int], bool], key: int) -> int:
        """Make a frame the current one of all whose current frame is one of those; returns how many these are."""
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
    """Note something of a client, and forget those that have said nothing for longest."""
    told.pop(who, None)
    told[who] = what
    while len(told) > _MOST_CLIENTS:
        del told[next(iter(told))]
