"""Writes and reads hand-offs: short, with a name for the details instead of their text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from rlm_contexts.store.pins import holding
from rlm_ipc.messages import JsonObject
from rlm_mcp.service.caller import Caller
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.errors import ToolFault, refuse_unknown
from rlm_mcp.service.frames.frames import Frames
from rlm_mcp.service.holders import Holders
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.text_access import Texts
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory.contexts import StoredContent
from rlm_memory.frames import rows
from rlm_memory.frames.rows import FrameRow
from rlm_memory.frames.states import Kind
from rlm_memory.store import Store
from rlm_memory.work import leases
from rlm_memory.work.handoffs import HandOff, Result, hand_off, of_frame, short

_KNOWN = ("status", "summary", "files", "decisions", "details")
_TAKES = f"data takes {', '.join(_KNOWN)}"


class HandOffs:
    """The hand-offs of all frames."""

    def __init__(
        self,
        store: Store,
        texts: Texts,
        contexts: Contexts,
        frames: Frames,
        holders: Holders,
        clock: Callable[[], float],
    ) -> None:
        self._store, self._texts, self._contexts, self._frames = store, texts, contexts, frames
        self._holders, self._clock = holders, clock

    async def write(self, session: Session, caller: Caller, frame: str, data: Mapping[str, Any]) -> ToolAnswer:
        """Write the hand-off of a frame; answers with status and summary only.

        Raises:
            ToolFault: a field of ``data`` is unknown or has a wrong type.
            RowRequestError: the frame cannot have one, or another holder has it.
        """
        row = self._row(session, caller, frame)
        status, summary, lists, details = _checked(data)
        limit = session.policy.limits.content_bytes
        holder = self._holders.writer(caller.handshake, None, row.holder)
        with holding():
            stored = await self._texts.take(details, limit) if details else None
            with self._store.transaction():
                leases.check(self._store, rows.get(self._store, row.key), holder, now=self._clock())
                made = hand_off(
                    self._store,
                    row.key,
                    status=status,
                    summary=summary,
                    files=lists["files"],
                    decisions=lists["decisions"],
                    details=stored.digest if stored else None,
                    size=stored.size if stored else 0,
                    now=self._clock(),
                )
        return ToolAnswer({"status": made.status.value, "summary": short(made.summary)}, ("summary",))

    async def read(self, session: Session, caller: Caller, frame: str, *, details: bool) -> ToolAnswer:
        """Show the hand-off of a frame; its details only on request, as a text of the session.

        Raises:
            ToolFault: the frame has none, because it has not ended.
        """
        row = self._row(session, caller, frame)
        found = of_frame(self._store, row.key)
        if found is None:
            is_session = row.kind is Kind.SESSION
            hint = "it stands for a session; read the hand-off of a goal" if is_session else "pop it: that writes one"
            raise ToolFault("no_handoff", f"{row.id} is {row.status} and has no hand-off", hint)
        fields: JsonObject = {"frame": row.id, "status": found.status.value, "summary": short(found.summary)}
        fields |= {"files": list(found.files), "decisions": list(found.decisions)}
        fields |= self._frames.versions.told(row.key)
        if found.archived_at is not None:
            fields["archived"] = True
        if found.details is None:
            if found.compacted_at is not None:
                fields["details"] = "gone: its story is done"
        elif details:
            fields["details"] = await self._loaded(session, row, found)
        else:
            fields["details_bytes"] = found.size
        return ToolAnswer(fields, ("summary", "files", "decisions"))

    async def _loaded(self, session: Session, row: FrameRow, found: HandOff) -> str:
        """Give the details a name in the session, and return it."""
        assert found.details is not None
        text = await asyncio.to_thread(self._texts.stored, found.details)
        content = StoredContent(text.digest, text.size, text.line_count, "handoff", {"frame": row.id})
        return self._contexts.put_under(session, f"handoff_{row.id}", content)

    def _row(self, session: Session, caller: Caller, frame: str) -> FrameRow:
        return rows.same_tree(self._store, self._frames.current(session, caller), frame)


def _checked(data: Mapping[str, Any]) -> tuple[Result, str, dict[str, list[str]], str]:
    refuse_unknown("handoff", data, _KNOWN, _TAKES)
    if data.get("status", "PASS") not in list(Result):
        raise _refused(f"status must be one of {', '.join(Result)}")
    summary, details = data.get("summary"), data.get("details", "")
    if not isinstance(summary, str) or not summary.strip() or not isinstance(details, str):
        raise _refused("summary must be a string of two or three sentences, and details a string of any length")
    lists = {name: data.get(name, []) for name in ("files", "decisions")}
    for name, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _refused(f"{name} must be a list of strings")
    return Result(data.get("status", "PASS")), summary, lists, details


def _refused(why: str) -> ToolFault:
    return ToolFault("invalid_arguments", f"handoff: {why}", _TAKES)
