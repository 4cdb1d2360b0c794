"""What clients can read of goals as MCP resources: the tree, and of each frame its context and its log."""

from __future__ import annotations

import re

from mcp_types import ReadResourceResult, Resource, ResourceTemplate, TextResourceContents

from rlm_mcp.service.service import Caller, Service

__all__ = ["RESOURCES", "TEMPLATES", "read"]

_TREE = "rlm-kernel://frames"
_FRAME = re.compile(r"rlm-kernel://frames/(f\d+)/(context|log)")
_PLAIN, _XML, _MARKDOWN = "text/plain", "application/xml", "text/markdown"

RESOURCES = [
    Resource(name="tree", uri=_TREE, title="Tree of goals", description="Ids, statuses, goals.", mime_type=_PLAIN)
]
TEMPLATES = [
    ResourceTemplate(
        name="context",
        uri_template=f"{_TREE}/{{id}}/context",
        title="Context of a frame",
        description="What a model is told of the tree.",
        mime_type=_XML,
    ),
    ResourceTemplate(
        name="log",
        uri_template=f"{_TREE}/{{id}}/log",
        title="Log of a frame",
        description="What came of a frame that has ended, with its cells.",
        mime_type=_MARKDOWN,
    ),
]


async def read(service: Service, caller: Caller, uri: str) -> ReadResourceResult | None:
    """Return what is at an address, or None when nothing ever is. Which frame is current does not change.

    Raises:
        ToolFault, UnknownFrame: the caller has no session, there is no such frame in its tree, or it has no log.
    """
    found = _FRAME.fullmatch(uri)
    if found is None and uri != _TREE:
        return None
    async with service.session(caller) as session:
        who = session, caller.handshake, caller.session
        if found is None:
            text, kind = service.frames.tree_of(*who), _PLAIN
        elif found[2] == "context":
            text, kind = service.frames.context_of(*who, found[1]), _XML
        else:
            text, kind = service.frames.log_of(*who, found[1]), _MARKDOWN
    return ReadResourceResult(contents=[TextResourceContents(uri=uri, mime_type=kind, text=text)])
