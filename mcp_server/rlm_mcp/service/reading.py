"""Reading by name: page, search, list and describe.

Loaded texts are read in the daemon, from the context store, so that they answer while a cell runs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from rlm_kernel.contexts.scan import ScanResult
from rlm_kernel.contexts.text import Page
from rlm_kernel.contexts.workers import ScanWorkers
from rlm_mcp.service.answers import Answer, encoded_length, moment
from rlm_mcp.service.contexts import Contexts
from rlm_mcp.service.files import FileTables
from rlm_mcp.service.names import is_handle
from rlm_mcp.service.sessions import Session
from rlm_mcp.service.texts import Texts
from rlm_mcp.service.variables import KernelVariables
from rlm_memory import contexts, handles, sessions
from rlm_memory.contexts import ContextRow, StoredContent
from rlm_memory.store import Store

__all__ = ["MAX_CHARS", "MAX_LINES", "MAX_MATCHES", "Reading", "Search"]

MAX_LINES = 20_000
"""Most lines of a page; more are clamped."""
MAX_MATCHES = 200
"""Most matches of a search; more are clamped."""
MAX_CHARS = 1_000_000
"""Most characters of a page that its caller can ask for."""
SCAN_SECONDS = 20.0
_COUNT_SECONDS = 0.2
"""How long a search that has found enough goes on counting."""
_LONGEST_MATCH = 2000
"""Characters shown of a matching line or of a line around it."""
_PAGE_OVERHEAD = 180
"""Characters of a page's answer beside its content and what the caller chose."""
_LEAST_ROOM = 64
_LISTS = ("files", "results")
_OPTIONS = {"case": "case_sensitive", "fixed": "fixed", "word": "word", "invert": "invert"}
"""The flags that are arguments of `contexts.scan.scan`."""


@dataclass(frozen=True)
class Search:
    """What `scan` is asked for besides the variable's name.

    Attributes:
        pattern, context_lines, max_matches, start_line: as of `contexts.scan.scan`; max_matches is clamped.
        flags: case, fixed, word and invert as there; count: find out how many lines match in all; per_file:
            in each file of a context that was made of several.
    """

    pattern: str
    context_lines: int = 0
    max_matches: int = 50
    start_line: int = 0
    flags: frozenset[str] = frozenset()

    def options(self) -> dict[str, bool | int]:
        """The further arguments of `contexts.scan.scan`, where they are not the usual ones."""
        given: dict[str, bool | int] = {meant: True for flag, meant in _OPTIONS.items() if flag in self.flags}
        return {**given, "start_line": self.start_line} if self.start_line else given

    @property
    def counts(self) -> bool:
        """Whether all matches are to be counted."""
        return not self.flags.isdisjoint({"count", "per_file"})


class Reading:
    """What the tools read."""

    def __init__(
        self,
        store: Store,
        texts: Texts,
        named: Contexts,
        variables: KernelVariables,
        scanner: ScanWorkers,
    ) -> None:
        self._store = store
        self._texts = texts
        self._named = named
        self._variables = variables
        self._scanner = scanner
        self._files = FileTables(texts, named)

    async def peek(self, session: Session, name: str, offset: int, limit: int, max_chars: int | None) -> Answer:
        """Return a page of lines: as many whole ones as the answer has room for."""
        limit = min(limit, MAX_LINES)
        most = min(max_chars, MAX_CHARS) if max_chars else session.policy.limits.answer_chars
        fields: dict[str, Any] = {"name": name, "offset": offset, "limit": limit}
        room = max(most - encoded_length(str(fields)) - _PAGE_OVERHEAD, _LEAST_ROOM)
        page = _fitting(await self._page(session, name, offset, limit, room), room)
        fields |= {
            "total_lines": page.total_lines,
            "returned": page.returned,
            "has_more": page.has_more,
            "content": page.text,
        }
        if page.has_more:
            fields["next_offset"] = page.next_offset
        if page.cut_line:
            fields["cut_line"] = f"line {offset} is longer; raise max_chars, or slice it with eval_code"
        return Answer(fields, limit=MAX_CHARS * 2)

    async def scan(self, session: Session, name: str, search: Search) -> Answer:
        """Search the lines."""
        table = await self._files.of(session, name) if "per_file" in search.flags else []
        found = await self._search(session, name, search, [row.line for row in table])
        results = [
            {"line": m.line, "text": _short(m.text), "context": [_short(line) for line in m.context]}
            for m in found.matches
        ]
        fields: dict[str, Any] = {"name": name, "pattern": search.pattern, "matches": len(results)}
        fields["truncated"] = found.truncated
        if found.truncated or search.counts:
            fields["total"] = found.total if found.exact else f">={found.total}"
        if "per_file" in search.flags:
            counts = zip(table, found.part_counts, strict=True)
            files = [{"path": row.path, "matches": count} for row, count in counts if count]
            return Answer({**fields, "files_matched": len(files), "results": results, "files": files}, _LISTS)
        return Answer({**fields, "results": results}, ("results",))

    async def list_vars(self, session: Session) -> Answer:
        """List the contexts, and the kernel's other variables when it can be asked now."""
        rows = contexts.of_session(self._store, session.key)
        made = await self._variables.rows(session)
        shadowed = await session.kernel.shadowed()
        listed = [*(_listed(row, shadowed) for row in rows), *map(_listed_variable, made or ())]
        fields: dict[str, Any] = {
            "session": session.id,
            "variables": listed,
            "total_size": sum({row.digest: row.size for row in rows}.values()),
        }
        if session.unsaid:
            fields["notice"], session.unsaid = session.unsaid, ""
        if made is None:
            fields["note"] = "code is running: only loaded contexts are listed"
        return Answer(fields, ("variables",))

    async def var_info(self, session: Session, name: str) -> Answer:
        """Describe one context, handle or kernel variable."""
        if is_handle(name):
            handle = handles.resolve(self._store, name, session.row)
            where = {"name": name, "var_name": handle.name, "session": sessions.name_of(self._store, handle.session)}
            fields = {**where, **_described(handle.content), "created": moment(handle.created_at)}
            return Answer(fields, ("metadata",))
        row = contexts.find(self._store, session.key, name)
        if row is not None:
            times = {"created": moment(row.created_at), "last_accessed": moment(row.last_accessed_at)}
            shape = await self._texts.shape(row.content)
            found: dict[str, Any] = {} if shape is None else {"shape": shape.to_dict()}
            if name in await session.kernel.shadowed():
                found["shadowed_in_code"] = True
            return Answer({"name": name, **_described(row.content), **times, **found}, ("metadata",))
        rows = await self._variables.rows(session) or []
        for variable in rows:
            if variable["name"] == name:
                return Answer(_listed_variable(variable), ("preview",))
        raise self._variables.missing(session, name, [str(row["name"]) for row in rows])

    async def _page(self, session: Session, name: str, offset: int, limit: int, room: int) -> Page:
        content = self._named.find(session, name)
        if content is None:
            return await self._variables.peek(session, name, offset, limit, room)
        return (await self._texts.open(content.digest)).peek(offset, limit, room)

    async def _search(self, session: Session, name: str, search: Search, parts: list[int]) -> ScanResult:
        content = self._named.find(session, name)
        most = min(search.max_matches, MAX_MATCHES)
        if content is None:
            return await self._variables.scan(
                session,
                name,
                search.pattern,
                context_lines=search.context_lines,
                max_matches=most,
                seconds=SCAN_SECONDS,
                options=search.options(),
            )
        return await self._scanner.scan(
            self._texts.stored(content.digest),
            search.pattern,
            context_lines=search.context_lines,
            max_matches=most,
            seconds=SCAN_SECONDS,
            count_seconds=SCAN_SECONDS if search.counts else _COUNT_SECONDS,
            line_chars=_LONGEST_MATCH,
            parts=parts,
            **search.options(),
        )


def _fitting(page: Page, room: int) -> Page:
    """The part of the page that takes at most ``room`` characters inside JSON, in whole lines if possible."""
    if encoded_length(page.text) <= room:
        return page
    lines = page.text.split("\n")
    kept = _how_many_fit(lines, room)
    if kept:
        end = page.offset + kept
        return Page("\n".join(lines[:kept]), page.offset, kept, page.total_lines, True, end, False)
    line = lines[0]
    while encoded_length(line) > room:
        line = line[: max(1, len(line) * room // encoded_length(line) - 1)]
    end = page.offset + 1
    return Page(line, page.offset, 1, page.total_lines, end < page.total_lines, end, True)


def _how_many_fit(lines: list[str], room: int) -> int:
    for number, line in enumerate(lines):
        room -= encoded_length(line)
        if room < 0:
            return number
        room -= 2  # a newline is two characters in JSON
    return len(lines)


def _short(line: str) -> str:
    if len(line) <= _LONGEST_MATCH:
        return line
    return f"{line[:_LONGEST_MATCH]}…[{len(line) - _LONGEST_MATCH:,} more characters]"


def _described(content: StoredContent) -> dict[str, Any]:
    sizes = {"line_count": content.line_count, "size": content.size, "type": content.type}
    return {**sizes, "metadata": dict(content.metadata)}


def _listed(row: ContextRow, shadowed: Collection[str]) -> dict[str, Any]:
    """A context; a variable may have its name in code."""
    fields = {"name": row.name, "line_count": row.line_count, "size": row.size, "type": row.type}
    told = {"shadowed_in_code": True} if row.name in shadowed else {}
    return {**fields, "created": moment(row.created_at), **told}


def _listed_variable(row: dict[str, Any]) -> dict[str, Any]:
    """A kernel variable in the shape of a context; when it was created is not known."""
    fields = {"name": row.get("name"), "line_count": row.get("line_count"), "size": row.get("size")}
    told = {"shadows_text": True} if row.get("shadows") else {}
    return {**fields, "type": row.get("type"), "created": None, "preview": row.get("preview"), **told}
