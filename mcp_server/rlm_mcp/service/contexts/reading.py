"""Reading by name: page, search, list and describe.

Loaded texts are read in the daemon, from the context store, so that they answer while a cell runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from rlm_contexts.search.pool import ScanWorkers
from rlm_contexts.searches import MAX_MATCHES, LineMatch, ScanResult, SearchRequest
from rlm_contexts.shares import ShownShare
from rlm_contexts.text.text import Text
from rlm_ipc.messages import JsonObject
from rlm_ipc.worker_requests import VariableRow
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.contexts.file_list import files_of
from rlm_mcp.service.contexts.pages import MAX_CHARS, fitting, pieces
from rlm_mcp.service.contexts.variables import KernelVariables
from rlm_mcp.service.sessions.names import is_handle
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.text_access import Texts
from rlm_mcp.service.tool_answers import ToolAnswer, encoded_length, moment
from rlm_mcp.service.unchanged import Unchanged
from rlm_memory import contexts, handles, queries, sessions
from rlm_memory.contexts import ContextRow, StoredContent
from rlm_memory.errors import UnknownQuery
from rlm_memory.store import Store

USUAL_LINES = 2000
"""The most lines of a page without a requested limit."""
MAX_LINES = 20_000
"""Most lines of a page; more are clamped."""
MAX_AROUND = 200
"""Most lines before and after a match of a search; more are clamped."""
SCAN_SECONDS = 20.0
_COUNT_SECONDS = 0.2
"""How long a search that has enough matches continues to count."""
_LONGEST_MATCH = 2000
"""Characters shown of a matching line or of a line around it."""
_PAGE_OVERHEAD = 180
"""Characters of a page's answer besides its content and the caller's own values."""
_LEAST_ROOM = 64
_LISTS = ("files", "results")
_LINE_BY_LINE = (
    "a newline in the pattern matches nothing, because lines are searched one by one: search for one of them, "
    "with context_lines for those around it"
)
_NEWLINE = re.compile(r"\n|(?<!\\)(?:\\\\)*\\n")
"""A newline in a regular expression, as such or as an escape."""
_EXCLUDED = re.compile(r"\[\^[^]]*\]")
"""A negated set in a regular expression: a newline in it does not ask for a newline."""
_REST = "ask for fewer lines or more max_chars, or slice the line with eval_code"


class Reading:
    """Reads texts and variables for the tools."""

    def __init__(
        self, store: Store, texts: Texts, named: Contexts, variables: KernelVariables, scanner: ScanWorkers
    ) -> None:
        self._store = store
        self._rows = Unchanged(store)
        self._texts, self._named, self._variables, self._scanner = texts, named, variables, scanner

    async def peek(
        self, session: Session, name: str, offset: int, limit: int | None, max_chars: int | None
    ) -> ToolAnswer:
        """Return a page: ``limit`` lines, the longest cut if necessary, or as many whole ones as fit.

        If more lines follow, the answer's ``limit`` is the number of returned lines, so that a reader who continues at
        ``offset + limit`` skips none. A negative offset means the first line, so that a reader of ten lines before a
        match need not check its position.

        Raises:
            ToolFault: there is no such variable, or no room for a piece of each line.
        """
        offset, asked = max(offset, 0), min(limit or USUAL_LINES, MAX_LINES)
        usual = session.policy.limits.answer_chars
        most = min(max_chars, max(MAX_CHARS, usual)) if max_chars else usual
        fields: JsonObject = {"name": name, "offset": offset, "limit": asked}
        room = max(most - encoded_length(str(fields)) - _PAGE_OVERHEAD, _LEAST_ROOM)
        lines, total = await self._first(session, name, offset, asked, room)
        shown, cut, left = fitting(lines, room), 0, max(total - offset, 0)
        wanted = min(asked, left) if limit is not None else max(len(shown), min(left, 1))
        if len(shown) < wanted:
            found = pieces(await self._every(session, name, offset, wanted, room), room)
            shown, cut = [str(line) for line in found], sum(line.cut for line in found)
        has_more = len(shown) < left
        if has_more:
            fields["limit"] = len(shown)
        fields |= {"total_lines": total, "returned": len(shown), "has_more": has_more, "content": "\n".join(shown)}
        if has_more:
            fields["next_offset"] = offset + len(shown)
        if cut:
            fields |= {"cut": True, "cut_lines": cut, "rest": _REST}
        return ToolAnswer(fields, limit=2 * (most + MAX_CHARS))

    async def scan(
        self, session: Session, name: str, asked: SearchRequest, *, count: bool = False, per_file: bool = False
    ) -> ToolAnswer:
        """Search the lines, and ``count`` all that match, or those of each file of a context of several files."""
        table = await files_of(self._texts, self._named, session, name) if per_file else []
        request = replace(
            asked,
            context_lines=min(asked.context_lines, MAX_AROUND),
            seconds=SCAN_SECONDS,
            count_seconds=SCAN_SECONDS if count or per_file else _COUNT_SECONDS,
            line_chars=max(_LONGEST_MATCH, session.policy.limits.answer_chars // MAX_MATCHES),
            parts=tuple(row.line for row in table),
        )
        found = await self._search(session, name, request)
        results = [_result(match, name, request.context_lines) for match in found.matches]
        fields: JsonObject = {"name": name, "pattern": request.pattern, "matches": len(results)}
        fields["truncated"] = found.truncated
        if found.truncated or count or per_file:
            fields["total"] = found.total if found.exact else f">={found.total}"
        if not results and _asks_for_newline(request):
            fields["notice"] = _LINE_BY_LINE
        if request.start_line and not results:
            _, lines = await self._first(session, name, 0, 1, _LEAST_ROOM)
            if request.start_line >= lines:
                fields["notice"] = f"nothing was searched: {name} has {lines:,} lines, and start_line counts from 0"
        if per_file:
            counts = zip(table, found.part_counts, strict=True)
            files = [{"path": row.path, "matches": count} for row, count in counts if count]
            return ToolAnswer({**fields, "files_matched": len(files), "results": results, "files": files}, _LISTS)
        return ToolAnswer({**fields, "results": results}, ("results",))

    async def list_vars(self, session: Session) -> ToolAnswer:
        """List the contexts, and the kernel's other variables if it can be asked now."""
        rows = self._rows.read(contexts.of_session, session.key)
        made = await self._variables.rows(session, [row.name for row in rows])
        shadowed = await session.kernel.shadowed() if made is None and rows else _shadowing(made or ())
        listed = [*(_listed(row, shadowed) for row in rows), *map(_listed_variable, made or ())]
        fields: JsonObject = {
            "session": session.id,
            "variables": listed,
            "total_size": sum({row.digest: row.size for row in rows}.values()),
        }
        if session.unsaid:
            fields["notice"], session.unsaid = session.unsaid, ""
        if made is None:
            fields["note"] = "code is running, so only loaded contexts are listed"
        return ToolAnswer(fields, ("variables",))

    async def var_info(self, session: Session, name: str) -> ToolAnswer:
        """Describe one context, handle or kernel variable."""
        if is_handle(name):
            handle = handles.resolve(self._store, name, session.row)
            where = {"name": name, "var_name": handle.name, "session": sessions.name_of(self._store, handle.session)}
            fields = {**where, **_described(handle.content), "created": moment(handle.created_at)}
            return ToolAnswer(fields, ("metadata",))
        row = self._rows.read(contexts.find, session.key, name)
        if row is not None:
            times = {"created": moment(row.created_at), "last_accessed": moment(row.last_accessed_at)}
            shape = await self._texts.shape(row.content)
            found: JsonObject = {} if shape is None else {"shape": shape.to_dict()}
            if name in await session.kernel.shadowed():
                found["shadowed_in_code"] = True
            return ToolAnswer({"name": name, **_described(row.content), **times, **found}, ("metadata",))
        return ToolAnswer(_listed_variable(await self._variables.row(session, name)), ("preview",))

    async def _first(
        self, session: Session, name: str, offset: int, limit: int, room: int
    ) -> tuple[Sequence[str], int]:
        """Return the first whole lines of a page that fit into ``room`` characters, and how many lines there are."""
        text = await self._text(session, name)
        if text is None:
            return await self._variables.peek(session, name, offset, limit, room)
        page = text.peek(offset, limit, room)
        whole = page.returned and not page.cut_line
        return page.text.split("\n") if whole else (), page.total_lines

    async def _every(self, session: Session, name: str, offset: int, limit: int, room: int) -> list[ShownShare]:
        """Return every line of a page, the longest cut so that all have about ``room`` characters."""
        text = await self._text(session, name)
        if text is None:
            return await self._variables.peek_every(session, name, offset, limit, room)
        return text.peek_every(offset, limit, room)

    async def _text(self, session: Session, name: str) -> Text | None:
        """Return the loaded text of that name, or the prompt of the query with that id; None for a variable of code."""
        content = self._named.find(session, name)
        if content is not None:
            return await self._texts.open(content.digest)
        try:
            asked = queries.get(self._store, session.key, name)
        except UnknownQuery:
            return None
        return Text.from_bytes(asked.prompt.encode())

    async def _search(self, session: Session, name: str, request: SearchRequest) -> ScanResult:
        content = self._named.find(session, name)
        if content is None:
            return await self._variables.scan(session, name, request)
        return await self._scanner.scan(self._texts.stored(content.digest), request)


def _asks_for_newline(request: SearchRequest) -> bool:
    """Tell whether the pattern has a newline, which no line has."""
    if request.fixed:
        return "\n" in request.pattern
    return _NEWLINE.search(_EXCLUDED.sub("", request.pattern)) is not None


def _result(match: LineMatch, name: str, around: int) -> JsonObject:
    """Return a match for an agent. If it is cut, it says so, with the length of the line and where the rest is."""
    fields: JsonObject = {"line": match.line, "text": match.text, "context": list(match.context)}
    if not match.clipped and not match.context_cut:
        return fields
    text = ShownShare(match.text, match.chars)
    rest = f"peek({name!r}, {max(match.line - around, 0)}, {max(len(match.context), 1)})"
    return {**fields, "text": text, "cut": True, "chars": match.chars, "rest": rest}


def _described(content: StoredContent) -> JsonObject:
    sizes = {"line_count": content.line_count, "size": content.size, "type": content.type}
    return {**sizes, "metadata": dict(content.metadata)}


def _listed(row: ContextRow, shadowed: Collection[str]) -> JsonObject:
    """Describe a context; in code, a variable may have its name."""
    fields = {"name": row.name, "line_count": row.line_count, "size": row.size, "type": row.type}
    told = {"shadowed_in_code": True} if row.name in shadowed else {}
    return {**fields, "created": moment(row.created_at), **told}


def _shadowing(made: Sequence[VariableRow]) -> set[str]:
    return {row.name for row in made if row.shadows}


def _listed_variable(row: VariableRow) -> JsonObject:
    """Describe a kernel variable like a context; its time of creation is unknown."""
    fields = {"name": row.name, "line_count": row.line_count, "size": row.size, "type": row.type, "created": None}
    told = {"shadows_text": True} if row.shadows else {}
    return {**fields, "preview": row.preview, **told}
