"""Tool calls, by the SDK or directly: their callers and answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlm_ipc.daemon_dialogue import ENVELOPE
from rlm_ipc.messages import Json
from rlm_ipc.version import VERSION
from rlm_mcp.client_info import current_handshake
from rlm_mcp.daemon.direct_calls import CallTool, Content, HasLeft, Permit, ResultShape
from rlm_mcp.formats.pictures import PNG
from rlm_mcp.service.progress import Progress
from rlm_mcp.service.service import Caller, Service
from rlm_mcp.service.sessions.names import frame_named
from rlm_mcp.tools.catalogue import TOOLS

if TYPE_CHECKING:
    from rlm_mcp.service.queries.sampling import Sampling

NAME, TITLE = "rlm-kernel", "RLM kernel"
_LONGEST_AGENT = 128
_OURS = ResultShape(
    {
        "content": [],
        "isError": False,
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": NAME, "title": TITLE, "version": VERSION}},
    },
    {"text": "", "type": "text"},
    {"data": "", "mimeType": PNG, "type": "image"},
)
"""The form in which the SDK would answer our own clients."""


async def answered(service: Service, name: str, arguments: Mapping[str, Json] | None, caller: Caller) -> Content:
    """Call a tool, and add messages of hooks for its client."""
    outcome = await TOOLS.call(service, name, arguments, caller)
    texts = [text for text in (outcome.text, service.hooks.due(caller.handshake)) if text]
    return Content(texts, outcome.images, outcome.is_error)


def calling(
    service: Service, meta: Mapping[str, Any], progress: Progress, sampling: Sampling | None, has_left: HasLeft
) -> Caller:
    """Return the caller of a call, from its connection and its ``_meta``."""
    asked, agent = meta.get("session"), meta.get("threadId")
    client = current_handshake.get()
    if not isinstance(agent, str):
        agent = service.hooks.agents.of_call(meta.get("claudecode/toolUseId"))
    if agent:
        client = replace(client, agent=agent[:_LONGEST_AGENT])
    named = asked if isinstance(asked, str) and asked else None
    return Caller(client, named or frame_named(client), progress, sampling, has_left)


def direct_call(service: Service) -> CallTool:
    """Return the function that makes a direct call."""

    async def call(
        name: str, arguments: Mapping[str, Json], meta: Mapping[str, Json], progress: Progress, has_left: HasLeft
    ) -> Content:
        return await answered(service, name, arguments, calling(service, meta, progress, None, has_left))

    return call


def own_permit(service: Service) -> Permit:
    """Permit the calls of our own clients."""
    return Permit(ENVELOPE, _OURS, direct_call(service))
