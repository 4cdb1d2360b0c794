"""The texts that hooks print, kept up to date: one file for each tree, written when something of the tree changes."""

from __future__ import annotations

import logging

from rlm_mcp.service.after_changes import look_after_changes
from rlm_mcp.service.hooks.folder import HookFolder
from rlm_memory.errors import StoreFault
from rlm_memory.store import Store
from rlm_memory.work import prime

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.1
"""How long changes are collected before they are written."""


class Primes:
    """Writes the texts; `close` ends that."""

    def __init__(self, store: Store, folder: HookFolder) -> None:
        self._store, self._folder = store, folder
        self._state: tuple[int, float, int, int] | None = None
        self._written: set[str] = set()

    async def keep(self) -> None:
        """Write the texts now, and whenever something changes, until cancelled."""
        await look_after_changes(self._store, self.write, pause=_PAUSE_SECONDS)

    def write(self) -> bool:
        """Write what has changed since the last time. Return whether no fault stopped it."""
        try:
            if prime.state(self._store) == self._state:  # most transactions do not affect any tree
                return True
            with self._store.transaction():
                state = prime.state(self._store)
                changed = self._trees(state)
                texts = {tree: prime.assemble(self._store, tree) for tree in changed}
            for tree, text in texts.items():
                self._folder.write_prime(tree, text)
                self._written.add(tree)
            self._state = state
        except (StoreFault, OSError):
            log.warning("what hooks print could not be written", exc_info=True)
            return False
        return True

    def _trees(self, state: tuple[int, float, int, int]) -> set[str]:
        """List the trees whose texts may have changed: all of them if frames were deleted, as no row shows that."""
        before = self._state
        if before is None or state[2] < before[2] or state[3] != before[3]:
            return {*prime.trees(self._store, None), *self._written}
        return set(prime.trees(self._store, before))
