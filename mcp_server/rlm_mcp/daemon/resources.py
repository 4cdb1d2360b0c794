"""The MCP resources: the tree, each frame's context and log, and the state of the work."""

from __future__ import annotations

import re

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, ReadResourceResult, Resource, ResourceTemplate, TextResourceContents

from rlm_mcp.service.frames.changes import Part
from rlm_mcp.service.service import Caller, Service
from rlm_memory.places import tree_of

_TREE = "rlm-kernel://frames"
_PRIME = "rlm-kernel://prime"
_FRAME = re.compile(r"rlm-kernel://frames/(f\d+)/(context|log)")
_PLAIN = "text/plain"
_TYPES = {"tree": _PLAIN, "context": "application/xml", "log": "text/markdown"}

RESOURCES = [
    Resource(name="tree", uri=_TREE, title="Tree of goals", description="Ids, statuses, goals.", mime_type=_PLAIN),
    Resource(
        name="prime",
        uri=_PRIME,
        title="Where the work stands",
        description="Where was I, what is next, what may I touch.",
        mime_type=_PLAIN,
    ),
]
TEMPLATES = [
    ResourceTemplate(
        name="context",
        uri_template=f"{_TREE}/{{id}}/context",
        title="Context of a frame",
        description="What a model should know of the frame.",
        mime_type=_TYPES["context"],
    ),
    ResourceTemplate(
        name="log",
        uri_template=f"{_TREE}/{{id}}/log",
        title="Log of a frame",
        description="The result of an ended frame, with its cells.",
        mime_type=_TYPES["log"],
    ),
]


def part_at(uri: str) -> Part | None:
    """Return the part of a tree at an address, or None if it is not an address of ours."""
    found = _FRAME.fullmatch(uri)
    if found is not None:
        return Part("context" if found[2] == "context" else "log", found[1])
    return Part("tree") if uri == _TREE else None


def address_of(part: Part) -> str:
    """Return the address of a part of a tree."""
    return _TREE if part.what == "tree" else f"{_TREE}/{part.frame}/{part.what}"


def nothing_at(uri: str) -> MCPError:
    """Return the error for an address that is not ours."""
    return MCPError(INVALID_PARAMS, f"there is nothing at {uri[:200]!r}; ask for resources/list")


async def read(service: Service, caller: Caller, uri: str) -> ReadResourceResult | None:
    """Return the resource at an address, or None if it is not ours. The current frame does not change.

    Raises:
        ToolFault, UnknownFrame: the caller has no session, its tree has no such frame, or the frame has no log.
    """
    if uri == _PRIME:
        async with service.session(caller) as session:
            named = tree_of(session.row.workspace, session.id)
            text = service.hooks.prime_of(named, caller.handshake)
        return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=_PLAIN, text=text)])
    part = part_at(uri)
    if part is None:
        return None
    async with service.session(caller) as session:
        text = await service.frame_reading.read(session, caller, part)
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=_TYPES[part.what], text=text)])
