"""What a session does when memory is short: it is saved and rests, and comes back when it is used again."""

from __future__ import annotations

import logging

from rlm_mcp.service.sessions.sessions import Session, Sessions
from rlm_mcp.service.sessions.snapshots import Snapshots

log = logging.getLogger(__name__)


async def make_room(sessions: Sessions, snapshots: Snapshots, session: Session) -> None:
    """Save a session and end its kernel, if nothing uses it and its policy has it come back by itself."""
    if not session.policy.reopen or _in_use(session):
        return
    used = session.last_used
    unsaved = await snapshots.reopening.save(session, trial=False)
    saved = not unsaved and snapshots.lasting.exists(session.key)
    if saved and not _in_use(session) and session.last_used == used and sessions.get(session.id) is session:
        log.warning("memory is short: session %s is saved, and its kernel ended until it is used again", session.id)
        await sessions.idled(session, used, "")


def _in_use(session: Session) -> bool:
    return bool(session.calls or session.kernel.busy or session.kernel.attachments)
