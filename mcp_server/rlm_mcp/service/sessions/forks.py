"""Forked sessions: a new session that begins with every variable and text of another, and waits for its queries too.

What lies in memory is the kernel's to copy; here are the rows. Texts are charged to the session that loaded them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from rlm_ipc.kernel_reports import ForkInfo
from rlm_ipc.messages import JsonObject
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.names import check_session_id
from rlm_mcp.service.sessions.policies import Policies, as_row
from rlm_mcp.service.sessions.sessions import Clock, Session, Sessions
from rlm_mcp.service.sessions.supervisor_gateway import KernelGateway
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory import contexts, inherited_queries, queries, sessions
from rlm_memory.contexts import ContextOrigin, ContextRow
from rlm_memory.frames import tree as frames
from rlm_memory.store import Store
from rlm_sandbox.policy import PinnedPolicy

_SUFFIX = re.compile(r"-f\d+$")
_LONGEST_STEM = 110


class Forks:
    """Makes sessions out of sessions."""

    def __init__(self, store: Store, live: Sessions, gateway: KernelGateway, policies: Policies, clock: Clock) -> None:
        self._store, self._gateway, self._policies, self._live, self._clock = store, gateway, policies, live, clock

    async def fork(
        self, parent: Session, name: str | None, policy: str | None, opened: Callable[[int], None] | None = None
    ) -> tuple[Session, ToolAnswer]:
        """Fork ``parent`` into a session called ``name`` (default: made up) under ``policy`` (default: its own).

        ``opened`` is called with its key in the transaction that makes its row, and notes what it is for; without it
        the session gets a frame that stands for it.

        Raises:
            ToolFault: there is such a session already.
            PolicyLooser, KernelBusy, ProcessError, WallsMissing, CallerError, PolicyError: it cannot be forked so.
        """
        rules = parent.pinned if policy is None else await self._policies.chosen(policy, parent.row.workspace)
        child_id = self._free_name(parent.id, name)
        # A supervisor that came after a crash does not know the queries from before it.
        asked = [
            row
            for row in queries.of_session(self._store, parent.key, queries.QueryState.PENDING)
            if row.mode == "deferred" and row.asked_by is queries.Asker.CODE
        ]
        key = sessions.new_key(self._store)
        forked = await parent.kernel.fork(child_id, key, rules)
        try:
            child = self._enter(parent, child_id, key, rules, forked, asked, opened)
        except BaseException:
            await self._gateway.discard(forked.kernel)
            raise
        return child, self._answer(parent, child, forked, [row.id for row in asked])

    def _free_name(self, parent: str, name: str | None) -> str:
        if name is not None:
            self._refuse_taken(check_session_id(name))
            return name
        stem = _SUFFIX.sub("", parent)[:_LONGEST_STEM]
        while self._taken(made_up := f"{stem}-f{self._store.count(f'fork {stem}') + 1}"):
            pass
        return made_up

    def _refuse_taken(self, name: str) -> None:
        if self._taken(name):
            raise ToolFault("session_exists", f"a session {name!r} exists already", "choose another name", name=name)

    def _taken(self, name: str) -> bool:
        return sessions.find(self._store, name) is not None

    def _enter(
        self,
        parent: Session,
        child_id: str,
        key: int,
        rules: PinnedPolicy,
        forked: ForkInfo,
        asked: Iterable[queries.QueryRow],
        noted: Callable[[int], None] | None,
    ) -> Session:
        """Write the child's rows, and open it on its kernel; ``asked`` are the parent's open queries."""
        self._refuse_taken(child_id)  # who asked for the same name meanwhile was faster
        now = self._clock()
        with self._store.transaction():
            opened = sessions.open_session(
                self._store,
                child_id,
                workspace=parent.row.workspace,
                policy=as_row(rules),
                family=as_row(parent.family),
                idle_seconds=rules.policy.limits.idle_seconds,
                now=now,
                key=key,
            )
            if noted is None:
                frames.note_fork(self._store, opened, parent.row, now=now)
            else:
                noted(key)
            for text in contexts.of_session(self._store, parent.key):
                self._share(text, key, now)
            inherited_queries.inherit(self._store, key, parent.key, asked, now)
            self._policies.admit(opened, parent.policy)
        return self._live.admit_fork(opened, parent, forked.kernel)

    def _share(self, text: ContextRow, child: int, now: float) -> None:
        """Give the child the parent's name for a text: the same load, so that its kernel need not be given it again."""
        contexts.put(
            self._store,
            child,
            text.name,
            text.content,
            now=now,
            origin=ContextOrigin.OUTPUT if text.origin is ContextOrigin.OUTPUT else ContextOrigin.ATTACHED,
            handle=text.handle,
            revision=text.revision,
        )

    def _answer(self, parent: Session, child: Session, forked: ForkInfo, held: list[str]) -> ToolAnswer:
        fields: JsonObject = {
            "session": child.id,
            "forked_from": parent.id,
            "policy": child.row.policy,
            "source": forked.origin.source,
            "kernel_id": forked.kernel.kernel_id,
            "connection_file": forked.kernel.connection_file,
            "contexts": contexts.names(self._store, child.key),
            "pending_llm_queries": queries.pending_ids(self._store, child.key),
            **({"inherited_llm_queries": held} if held else {}),
            "shared": "loaded texts and the scratch folder; its variables are its own from now on",
            "use": f"pass session={child.id!r} to any tool, or open connection_file; end_session ends only it",
        }
        if forked.origin.source == "checkpoint":
            behind = (
                f", {forked.origin.cells_behind} completed cell(s) before that" if forked.origin.cells_behind else ""
            )
            fields["notice"] = f"a cell is running; the fork has the variables as they were before it{behind}"
        lost = {
            "threads_not_running": forked.origin.threads,
            "tasks_not_running": forked.origin.tasks,
            "modules_not_admitted": forked.origin.dropped_modules,
        }
        return ToolAnswer(fields | {key: value for key, value in lost.items() if value}, ("contexts",))
