"""The tables of files: where each file begins in a context that was made of several.

A context of several files has its table as another context, of JSON lines, so that code can use it too;
its name is in the metadata of the first.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from rlm_contexts.bundle import FileRow
from rlm_contexts.text.lines import Lines
from rlm_mcp.service.contexts.contexts import Contexts
from rlm_mcp.service.contexts.names import TABLE_OF
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.text_access import Texts


async def files_of(texts: Texts, named: Contexts, session: Session, name: str) -> list[FileRow]:
    """Return the files of a context in order; raises ToolFault when it is not one of several files."""
    content = named.find(session, name)
    files = content.metadata.get("files") if content else None
    if not isinstance(files, dict) or not isinstance(table := files.get("table"), str):
        said = f"{name!r} was not loaded from several files, so matches cannot be counted per file"
        raise ToolFault("invalid_arguments", said, "leave out per_file, or load a directory")
    listed = named.find(session, table)
    if listed is None:
        said = f"{table!r}, the table of files of {name!r}, is not in this session"
        raise ToolFault("variable_not_found", said, "load the files here, or have their table shared too")
    if listed.metadata.get(TABLE_OF) != named.known_as(session, name):
        raise _no_table(table)  # the table of another text that took this name
    text = await texts.open(listed.digest)
    return await asyncio.to_thread(_parsed, Lines(text), table)


def _parsed(lines: Sequence[str], table: str) -> list[FileRow]:
    """Return the rows. The table's name may have been given to something else."""
    try:
        rows = [FileRow(**json.loads(line)) for line in lines]
        ordered = all(type(row.line) is int for row in rows) and [r.line for r in rows] == sorted(r.line for r in rows)
    except (ValueError, TypeError, RecursionError):
        ordered = False
    if not ordered:
        raise _no_table(table)
    return rows


def _no_table(table: str) -> ToolFault:
    said = f"{table!r} is not a table of files, or belongs to another text"
    return ToolFault("invalid_arguments", said, "load the files again")
