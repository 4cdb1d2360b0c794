"""Values handed over from a frame to its parent: stored before the pop, and in the kernel before its next cell.

A loaded text is handed over as a context, without a copy. Any other value is serialised by the worker: bytes that are
not inspected here, stored as base64 in the content store. The parent's kernel decides what it accepts.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Mapping, Sequence

from rlm_contexts.errors import ContextError
from rlm_contexts.store.store import ContextStore
from rlm_contexts.text.model import StoredText
from rlm_ipc.messages import plain
from rlm_ipc.variable_images import of_json
from rlm_kernel.supervisor_client import SupervisorClient
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.saved_variables import hand_in, hand_out, new_image
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_memory import contexts
from rlm_memory.contexts import ContextOrigin, StoredContent
from rlm_memory.frames import runtime, survey
from rlm_memory.frames.results import HandedOver
from rlm_memory.frames.runtime import Undelivered
from rlm_memory.store import Store

VARIABLE = "frames"
"""The variable with the results of child frames, for code."""
_MOST_SHOWN = 200
_TEXT = "text"


class FrameValues:
    """Stores values of a session, and delivers them to the kernel of another."""

    def __init__(self, store: Store, files: ContextStore, clock: Clock) -> None:
        self._store, self._files, self._clock = store, files, clock

    async def store(self, session: Session, names: Sequence[str]) -> list[HandedOver]:
        """Put variables of a session into the content store. The caller pins them until rows refer to them.

        Raises:
            ToolFault: one of them does not exist, or cannot be serialised.
            KernelError: the kernel ended in the meantime.
        """
        handed_over: list[HandedOver] = []
        variables: list[str] = []
        for name in dict.fromkeys(names):
            row = contexts.find(self._store, session.key, name)
            if row is None:
                variables.append(name)
                continue
            await asyncio.to_thread(self._files.get, row.digest)  # a pin, as long as the caller holds it
            handed_over.append(HandedOver(name, row.digest, row.size, _TEXT))
        if not variables:
            return handed_over
        if not session.kernel.alive:
            raise _not_stored(variables[0], "the frame's session has no kernel at the moment", [])
        async with session.kernel.turn.between_cells():
            blobs = await self._serialised(session, variables)
        for name, blob in blobs.items():
            stored = await asyncio.to_thread(self._files.put_text, base64.b64encode(blob).decode("ascii"))
            handed_over.append(HandedOver(name, stored.digest, len(blob)))
        return handed_over

    async def deliver(self, session: Session, client: SupervisorClient, kernel: str, *, again: bool) -> None:
        """Give a kernel the values handed over to its frames, and the variable with the results of child frames.

        With ``again``, also those that an earlier kernel of the session had.
        """
        waiting = runtime.undelivered(self._store, session.key, again=again)
        results = {
            frame: plain(result) for frame, result in survey.came_to(self._store, session.key, _MOST_SHOWN).items()
        }
        blobs = {VARIABLE: of_json({VARIABLE: results})} if results else {}
        failed = []
        for value in waiting:
            try:
                if value.form == _TEXT:
                    stored = await asyncio.to_thread(self._files.get, value.digest)
                    self._bind(session, value.name, stored)
                else:
                    blobs[value.name] = await asyncio.to_thread(self._read, value)
            except ContextError as error:
                failed.append(f"{value.name}: {error}")
        if blobs:
            failed += await _restore(client, kernel, blobs)
        if failed:
            notice = f"could not be made variables: {'; '.join(failed)}"
            session.kernel.notice = "; ".join(filter(None, (session.kernel.notice, notice)))
        runtime.delivered(self._store, waiting, now=self._clock())
        if any(value.form == _TEXT for value in waiting):
            session.kernel.bound.stale = True

    def _bind(self, session: Session, name: str, stored: StoredText) -> None:
        """Give the session the text under its name; it counts toward the quota of the frame's session."""
        content = StoredContent(stored.digest, stored.loaded, stored.line_count, "custom", {})
        origin = ContextOrigin.ATTACHED
        contexts.put(self._store, session.key, name, content, now=self._clock(), origin=origin)

    def _read(self, value: Undelivered) -> bytes:
        return base64.b64decode(self._files.open(self._files.get(value.digest)).content)

    async def _serialised(self, session: Session, names: Sequence[str]) -> dict[str, bytes]:
        limit = session.policy.limits.memory_bytes // 4
        blobs = {}
        for name in names:
            image = bytearray()
            async for report, data in hand_out(session, [name]):
                if report.size > limit:
                    raise _not_stored(name, f"its {report.size:,} bytes are more than {limit:,}", [])
                for failed in report.failed:
                    raise _not_stored(name, failed.reason, [])
                for row in report.variables:
                    if row.content_of is not None:
                        raise _not_stored(name, f"it is the content of {row.content_of!r}: hand that over", [])
                if not report.variables:
                    why = f"session {session.id!r} of the frame has no such variable"
                    raise _not_stored(name, why, sorted(session.kernel.names))
                image += data
            blobs[name] = bytes(image)
        return blobs


async def _restore(client: SupervisorClient, kernel: str, blobs: Mapping[str, bytes]) -> list[str]:
    """Hand blobs to a kernel, in one file. Return those that it refused, with its reasons."""
    file = new_image()
    try:
        with os.fdopen(os.dup(file), "wb") as whole:
            whole.writelines(blobs.values())
        report = await hand_in(client, kernel, file, [len(blob) for blob in blobs.values()])
    finally:
        os.close(file)
    return [f"{item.name}: {item.reason}" for item in report.failed]


def _not_stored(name: str, why: str, available: list[str]) -> ToolFault:
    hint = "nothing was changed; name variables of the frame's session, or none"
    return ToolFault("cannot_hand_over", f"{name!r} cannot be handed over: {why[:300]}", hint, available=available)
