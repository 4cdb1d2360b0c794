"""Which contexts a kernel has, each as which load of it: brought to what the rows say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable

from rlm_contexts.errors import ContextError
from rlm_contexts.store.store import ContextStore
from rlm_ipc.errors import KernelDied, KernelError, SupervisorGone, UnknownKernel, machine_full
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.text_access import shared_text_of
from rlm_memory import contexts
from rlm_memory.contexts import ContextRow
from rlm_memory.store import Store

log = logging.getLogger(__name__)


class BoundContexts:
    """The contexts of one session's kernel, with the revision that each was bound as."""

    def __init__(self, store: Store, session: int, texts: ContextStore) -> None:
        self._store, self._session, self._texts = store, session, texts
        self.revisions: dict[str, int] = {}
        self.stale = True
        """Whether the rows may say something else than the kernel has."""

    def forget(self) -> None:
        """The kernel has none, because it is another one or begins anew."""
        self.revisions.clear()
        self.stale = True

    def renew(self, digest: str) -> bool:
        """Have the names of a text bound anew, whose file is another one now; returns whether there are any."""
        rows = contexts.of_session(self._store, self._session)
        renewed = [row.name for row in rows if row.digest == digest and self.revisions.pop(row.name, None) is not None]
        self.stale |= bool(renewed)
        return bool(renewed)

    def current(self, names: Iterable[str]) -> set[str]:
        """Return those of the names whose contexts the kernel has as they are now."""
        rows = {name: contexts.find(self._store, self._session, name) for name in names}
        return {name for name, row in rows.items() if row and self.revisions.get(name) == row.revision}

    async def catch_up(self, client: SupervisorClient, kernel_id: str) -> str:
        """Bind and unbind until the kernel has what the rows say; return what the next answer has to tell."""
        if not self.stale:
            return ""
        self.stale = False
        try:
            return await self._catch_up(client, kernel_id)
        except BaseException:  # a caller that is cancelled, too
            self.stale = True
            raise

    async def _catch_up(self, client: SupervisorClient, kernel_id: str) -> str:
        wanted = {row.name: row for row in contexts.of_session(self._store, self._session)}
        for name in [name for name in self.revisions if name not in wanted]:
            del self.revisions[name]
            await client.unbind(kernel_id, name)
        notice = ""
        for row in wanted.values():
            if self.revisions.get(row.name) != row.revision:
                notice = await self._bind(client, kernel_id, row) or notice
        return notice

    async def _bind(self, client: SupervisorClient, kernel_id: str, row: ContextRow) -> str:
        """Bind one context. One that cannot be bound is told with the next answer; cells run without it."""
        self.revisions[row.name] = row.revision
        try:
            with await shared_text_of(self._texts, row.digest) as shared_text:
                facts = row.type, row.metadata
                await client.bind(kernel_id, row.name, shared_text, *facts, revision=row.revision)
        except (KernelDied, SupervisorGone, UnknownKernel):  # the process in its place has what the supervisor had
            raise
        except asyncio.CancelledError:
            self.revisions.pop(row.name, None)
            raise
        except (ContextError, KernelError, OSError, RuntimeError) as error:
            if machine_full(error) is not None:  # for now: the next cell tries again
                self.revisions.pop(row.name, None)
                self.stale = True
            log.warning("context %s of session %s cannot be attached: %s", row.name, row.session, error)
            return f"{row.name!r} could not be made a variable, but peek and scan can read it: {error}"
        return ""


def of_names(taken: Collection[str], returned: Collection[str]) -> str:
    """Say which names of loaded texts a cell has taken, and which mean their texts again."""
    told = []
    if taken:
        told.append(
            f"{_listed(taken)}: in code now a variable, which shadows the loaded text. The text stays: peek, scan, "
            "var_info and query read it by this name, `del` of the name brings it back in code, unload removes it"
        )
    if returned:
        told.append(f"{_listed(returned)}: in code the loaded text again, which only unload removes")
    return "; ".join(told)


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
