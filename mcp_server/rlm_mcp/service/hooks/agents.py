"""Finds the source of an event: the connected client from the processes above a hook, and the agent from a call.

A client starts its hooks and its MCP server itself, perhaps through a shell. So the nearest process above the server
that is not a shell is the client, and a hook belongs to that client if the same process is above it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from rlm_ipc import process_identity
from rlm_ipc.daemon_requests import Ancestor
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.hook.events import Origin

_SHELLS = frozenset({b"sh", b"bash", b"dash", b"zsh", b"fish", b"ksh", b"busybox"})
_MOST_ANCESTORS = 8
_MOST_CALLS = 1000
_MOST_LEFT = 100
"""How many disconnected clients are remembered, for the events of their hooks in the spool."""


@dataclass(eq=False)
class _Connected:
    client: ClientInfo
    owner: Ancestor | None


class Agents:
    """The connected clients, and the agents of their calls."""

    def __init__(self) -> None:
        self._connected: list[_Connected] = []
        self._left: deque[_Connected] = deque(maxlen=_MOST_LEFT)
        self._calls: dict[str, str] = {}

    @contextmanager
    def connected(self, client: ClientInfo, pid: int) -> Iterator[None]:
        """Remember a client while it is connected; ``pid`` is the process at the other end."""
        known = _Connected(client, _owner(pid))
        self._connected.append(known)
        try:
            yield
        finally:
            self._connected.remove(known)
            self._left.append(known)

    def find(self, origin: Origin, above: Iterable[Ancestor]) -> ClientInfo | None:
        """Return the client and agent of an event, or None if it was not connected."""
        for ancestor in above:
            for known in (*reversed(self._connected), *reversed(self._left)):
                if known.owner == ancestor:
                    # Codex names its first agent by its session.
                    agent = origin.agent or (origin.session if origin.client == "codex" else "")
                    return replace(known.client, agent=agent)
        return None

    def note_call(self, call: str, agent: str) -> None:
        """Note which agent makes a call of a tool; the call itself comes over MCP, by a connection that all share."""
        if call and agent:
            self._calls[call] = agent
            while len(self._calls) > _MOST_CALLS:
                del self._calls[next(iter(self._calls))]

    def of_call(self, call: object) -> str:
        """Return the agent that made a call; empty for the client itself, or if it is unknown."""
        return self._calls.pop(call, "") if isinstance(call, str) else ""


def ancestors(pid: int) -> Iterator[Ancestor]:
    """Return the processes above this one, as far as the system shows them."""
    return (ancestor for _, ancestor in _named_ancestors(pid))


def _owner(pid: int) -> Ancestor | None:
    return next((ancestor for name, ancestor in _named_ancestors(pid) if name not in _SHELLS), None)


def _named_ancestors(pid: int) -> Iterator[tuple[bytes, Ancestor]]:
    for above in islice(process_identity.ancestors(pid), _MOST_ANCESTORS):
        name, fields = process_identity.named_stat(above)
        if fields:
            yield name, Ancestor(above, int(fields[19]))
