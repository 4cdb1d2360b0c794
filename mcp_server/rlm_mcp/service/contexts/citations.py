"""Citations of loaded texts, and checking them."""

from __future__ import annotations

import asyncio

from rlm_contexts.text.citations import check, cite
from rlm_contexts.text.text import Text
from rlm_ipc.messages import JsonObject
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.text_access import Texts
from rlm_mcp.service.tool_answers import ToolAnswer
from rlm_memory.locks import VERSION_KEY


class Citing:
    """Cites and checks; by name or handle, loaded texts only: what code made has no hash that stays."""

    def __init__(self, texts: Texts, named: Contexts) -> None:
        self._texts = texts
        self._named = named

    async def cite(self, session: Session, name: str, lines: str | int) -> ToolAnswer:
        """Return lines with their range and the hash of the text; of a section of a lock with its version."""
        span = cite(await self._text(session, name), lines)
        fields: JsonObject = {"name": name, "lines": span.lines, "hash": span.hash, "text": span.text}
        content = self._named.find(session, name)
        if content is not None and VERSION_KEY in content.metadata:
            fields["version"] = content.metadata[VERSION_KEY]
        return ToolAnswer(fields, ("text",))

    async def check(
        self, session: Session, name: str, quote: str, lines: str | int | None, digest: str | None
    ) -> ToolAnswer:
        """Say whether the cited lines contain a quotation, and where the text contains it.

        A different hash is reported: the citation may be correct for that text.
        """
        text = await self._text(session, name)
        found = await asyncio.to_thread(check, text, quote, lines)
        same = digest in {None, text.facts.digest}
        fields: JsonObject = {"name": name, "stands": found.stands and same, "hash": text.facts.digest}
        if not same:
            fields["note"] = f"the citation is of another text ({str(digest)[:40]}) than {name!r} is now"
        if found.found is not None:
            fields["found_at"] = found.found.lines
        return ToolAnswer(fields)

    async def _text(self, session: Session, name: str) -> Text:
        content = self._named.get(session, name, "only loaded texts can be cited")
        return await self._texts.open(content.digest)
