"""The sections of a lock as contexts of sessions: one stored text for all, which counts toward no quota.

A session gets them with its first call of `lock`. Calls replace them, but never while a cell runs. A session's own
variables and texts of these names are kept.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Sequence

from rlm_contexts.store.pins import holding
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject, plain
from rlm_lock.protocol import Phase, ReadSection, Refreshed, Section
from rlm_lock.sections.history import History
from rlm_mcp.service.lock.history import past
from rlm_mcp.service.lock.projects import Project
from rlm_mcp.service.sessions.sessions import Clock, Session
from rlm_mcp.service.text_access import Texts
from rlm_memory import contexts, locks
from rlm_memory.contexts import ContextOrigin, ContextRow, StoredContent
from rlm_memory.locks import VERSION_KEY, LockText
from rlm_memory.store import Store

TYPE = "lock"
"""Content type of the contexts."""
_LARGEST = 64 << 20
"""The most bytes of a section."""


def name_of(section: Section) -> str:
    """Return the name of a section as a context."""
    return f"lock_{section.value}"


@dataclass(frozen=True, slots=True)
class Attached:
    """The contexts of a lock in a session, and the names that the session uses itself."""

    names: Sequence[str]
    taken: Sequence[str]
    is_late: bool
    """Whether its contexts are of an earlier version, because a cell is running."""


class Sections:
    """Stores the sections of versions, and gives them names in sessions."""

    def __init__(self, store: Store, texts: Texts, clock: Clock) -> None:
        self._store, self._texts, self._clock = store, texts, clock
        self._storing = asyncio.Lock()

    async def read(self, project: Project, question: ReadSection) -> JsonObject | str:
        """Return a section: of a map its text, of every other one its content; raises ToolFault as `Project.ask`."""
        if question.section is Section.HISTORY:
            return plain(self.history(project.root))
        read = await project.ask(question)
        return read.text if question.section is Section.MAP else read.content

    def history(self, root: str) -> History:
        """Return the latest goals of a project's repository, the newest first."""
        return past(self._store, root)

    async def attach(
        self, session: Session, project: Project, found: Refreshed, wanted: Collection[Section]
    ) -> Attached:
        """Give the sections of a version their names in a session; raises ToolFault as `Project.ask`."""
        have, taken, late, changed = [], [], False, False
        for section in wanted:
            name = name_of(section)
            row = contexts.find(self._store, session.key, name)
            if (row is not None and not locks.is_section(row)) or (row is None and name in session.kernel.names):
                taken.append(name)
                continue
            if row is not None and session.kernel.busy:
                late |= row.metadata[VERSION_KEY] != found.version
            else:
                with holding():
                    question = question_of(section, session.policy.lock.severe_rules)
                    text = await self._stored(project, found, question)
                    if text is None:
                        continue
                    changed |= self._put(session, name, row, project, found, text)
            have.append(name)
        if changed:
            session.kernel.changed()
        return Attached(have, taken, late)

    def _put(
        self, session: Session, name: str, row: ContextRow | None, project: Project, found: Refreshed, text: LockText
    ) -> bool:
        """Give a text a name. Return whether that is new."""
        metadata = {VERSION_KEY: found.version, "lock_tree": found.tree, "lock_root": project.root}
        if row is not None and (row.digest, dict(row.metadata)) == (text.digest, metadata):
            return False
        stored = self._texts.stored(text.digest)
        content = StoredContent(text.digest, stored.loaded, stored.line_count, TYPE, metadata)
        contexts.put(self._store, session.key, name, content, now=self._clock(), origin=ContextOrigin.ATTACHED)
        return True

    async def _stored(self, project: Project, found: Refreshed, question: ReadSection) -> LockText | None:
        """Return the text of a section, stored by the first request; None if there is none yet."""
        # Sessions whose policies mark the same rules share a text.
        section = question.section
        kind = f"{section.value} {json.dumps(question.severe)}" if question.severe else section.value
        async with self._storing:
            known = locks.section_text(self._store, project.root, kind)
            own = section is Section.HISTORY  # this section changes without a new version
            if known is not None and known.is_whole and known.version == found.version and not own:
                return known
            read = await self.read(project, question)
            if not read:
                return None
            kept = await self._texts.take(await asyncio.to_thread(_as_text, read), _LARGEST)
            made = LockText(found.version, kept.digest, found.phase is Phase.READY)
            locks.put_text(self._store, project.root, kind, made)
            return made


def question_of(section: Section, severe: tuple[str, ...], path: str = "", rules: str = "full") -> ReadSection:
    """Return the request for a section. The policy affects only the severity of rules."""
    return ReadSection(section, path=path, rules=rules, severe=severe if section is Section.RULES else ())


def _as_text(content: JsonObject | str) -> str:
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, indent=1) + "\n"
