"""The MCP server: the SDK's low-level `Server` over one `Service`, for every protocol version it speaks.

No state is kept per connection. The session of a call is named by the call (argument ``session``, or
``_meta.session``), else by the client's handshake.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    SERVER_INFO_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ImageContent,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    TextContent,
    methods,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from rlm_ipc.messages import Json
from rlm_ipc.version import VERSION
from rlm_mcp.client_info import HUNG_UP
from rlm_mcp.daemon import prompts, resources
from rlm_mcp.daemon.direct_calls import METHOD, Permit, ResultShape, current_direct_calls, envelope
from rlm_mcp.daemon.subscriptions import Subscriptions
from rlm_mcp.daemon.tool_calls import NAME, TITLE, answered, calling, direct_call
from rlm_mcp.daemon.tool_lists import ToolLists
from rlm_mcp.formats.pictures import PNG
from rlm_mcp.service.errors import fault_from
from rlm_mcp.service.queries.input_required import InputRequired
from rlm_mcp.service.queries.sampling import Sampling
from rlm_mcp.service.service import Caller, Service

Context = ServerRequestContext[Any]


def build_server(service: Service) -> Server[Any]:
    """Create the server for ``service``; one serves any number of connections."""

    async def list_tools(context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return await lists.listed(context)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        sampling = Sampling(context, params) if Sampling.offered(context) else None
        name, arguments = params.name, params.arguments
        if sampling is None:
            _permit(service, server, context)
        elif sampling.run:  # the same call again, with the answers that the code asked for
            name, arguments = "wait", {"run": sampling.run, "session": (arguments or {}).get("session")}
        try:
            content = await answered(service, name, arguments, _caller(service, context, sampling))
        except InputRequired as asked:
            return asked.result
        finally:
            if (direct := current_direct_calls.get()) is not None and context.request_id is not None:
                direct.ended(context.request_id)
        images = [ImageContent(data=image, mime_type=PNG) for image in content.images]
        texts = [TextContent(text=text) for text in content.texts]
        return CallToolResult(content=[*texts, *images], is_error=content.is_error)

    async def read_resource(context: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        try:
            found = await resources.read(service, _caller(service, context, None), params.uri)
        except Exception as error:
            raise MCPError(INVALID_PARAMS, fault_from(error).text) from error
        if found is None:
            raise resources.nothing_at(params.uri)
        return found

    lists = ToolLists(service)
    subscriptions = Subscriptions(service, lambda context: _caller(service, context, None), lists)

    @asynccontextmanager
    async def lifespan(server: Server[Any]) -> AsyncIterator[Service]:
        # The service is opened once, by `create`; every transport that enters the server shares it.
        yield service

    server: Server[Any] = Server(
        NAME,
        lifespan=lifespan,
        version=VERSION,
        title=TITLE,
        instructions=prompts.INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscriptions.subscribe,
        on_unsubscribe_resource=subscriptions.unsubscribe,
        on_subscriptions_listen=subscriptions.listen,
    )
    # The SDK's only middleware makes a span of each message, for a tracer that the daemon never sets up.
    server.middleware.clear()
    return server


async def _list_prompts(context: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
    return ListPromptsResult(prompts=prompts.list_prompts())


async def _get_prompt(context: Context, params: GetPromptRequestParams) -> GetPromptResult:
    found = prompts.get_prompt(params.name, params.arguments)
    if found is None:
        names = ", ".join(prompt.name for prompt in prompts.list_prompts())
        raise MCPError(INVALID_PARAMS, f"there is no prompt {params.name[:80]!r}; available: {names}")
    return found


async def _list_resources(context: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
    return ListResourcesResult(resources=resources.RESOURCES)


async def _list_templates(context: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    return ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)


def _permit(service: Service, server: Server[Any], context: Context) -> None:
    """Permit direct calls like this one, which the SDK has checked, if the connection supports them."""
    direct = current_direct_calls.get()
    if direct is not None and direct.permit is None:
        told = (context.params or {}).get("_meta") or {}
        shape = _shape(context.protocol_version, server.server_info_stamp)
        direct.permit = Permit(envelope(told), shape, direct_call(service))


def _shape(version: str, server_info: Mapping[str, Json]) -> ResultShape:
    """Return how the SDK writes the result of a call in one version of the protocol."""
    sample = CallToolResult(content=[TextContent(text=""), ImageContent(data="", mime_type=PNG)])
    dumped = sample.model_dump(by_alias=True, mode="json", exclude_none=True)
    result = methods.serialize_server_result(METHOD, version, dumped)
    text, image = result["content"]
    if version in MODERN_PROTOCOL_VERSIONS:
        result["_meta"] = {SERVER_INFO_META_KEY: dict(server_info)}
    return ResultShape(result, text, image)


def _caller(service: Service, context: Context, sampling: Sampling | None) -> Caller:
    async def progress(done: float, message: str, total: float | None = None) -> None:
        await context.session.report_progress(done, total, message)

    def has_left() -> bool:
        return direct is not None and request is not None and direct.has_left(request)

    def is_gone() -> bool:
        scope = getattr(context.request, "scope", None) or {}
        return HUNG_UP in scope and scope[HUNG_UP].is_set()

    direct, request = current_direct_calls.get(), context.request_id
    return replace(calling(service, context.meta or {}, progress, sampling, has_left), is_gone=is_gone)
