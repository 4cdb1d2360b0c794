"""The registry: which tools there are, in which tier they are listed, and how one is called.

A tool is an async function ``(service, session, arguments, caller) -> ToolAnswer`` with an argument model.
Every error becomes one JSON object that says what to do next; no input of a client raises out of `call`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

from pydantic import ValidationError

from rlm_contexts.errors import ContentDamaged
from rlm_contexts.shares import ShownShare
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_mcp.service.errors import ToolFault, fault_from, is_disk_full
from rlm_mcp.service.queries.input_required import InputRequired
from rlm_mcp.service.service import Caller, Service
from rlm_mcp.service.sessions.sessions import Session
from rlm_mcp.service.tool_answers import ToolAnswer, clean, encode
from rlm_mcp.tools.arguments import Arguments, Tier
from rlm_memory.errors import StoreFault

TIERS: tuple[Tier, ...] = ("core", "all", "compat")
"""Each tier lists its own tools and those of the tiers before it. Every tool can be called in every tier."""

A = TypeVar("A", bound=Arguments)
ToolFunction = Callable[[Service, Session, A, Caller], Awaitable[ToolAnswer]]

_UNCLEANED = {"content"}
"""Arguments whose lone surrogates the context store replaces and counts itself."""
_MOST_LISTED = 50
_LONGEST_MESSAGE = 2000


@dataclass(frozen=True)
class Tool:
    """One tool. ``arguments`` is the model of what it takes; ``in_turns``: its calls are turns of their frame.

    One that ``frees`` room also works on a full disk.
    """

    name: str
    description: str
    arguments: type[Arguments]
    function: ToolFunction[Any]
    tier: Tier
    read_only: bool
    in_turns: bool
    frees: bool

    def accepted(self) -> dict[str, str]:
        """Map each argument to its type and default, in words for an error message."""
        shown = {}
        required = set(self.schema.get("required", ()))
        whole = self.arguments.model_json_schema()["properties"]
        for name, part in self.schema["properties"].items():
            default = whole[name].get("default")
            otherwise = "none" if default in (None, "", [], {}) else default
            kind = " | ".join(part["enum"]) if "enum" in part else part.get("type", "any")
            shown[name] = f"{kind}, {'required' if name in required else f'default {otherwise}'}"
        return shown

    @cached_property
    def schema(self) -> JsonObject:
        """The JSON schema of the arguments without parts that only cost tokens."""
        full = self.arguments.model_json_schema()
        properties = {name: _compact(part) for name, part in full["properties"].items()}
        properties["session"] = properties.pop("session")  # last: it matters least
        schema: JsonObject = {"type": "object", "properties": properties}
        if "required" in full:
            schema["required"] = full["required"]
        return schema


@dataclass(frozen=True)
class ToolOutcome:
    """The text of a call, whether it is an error, and pictures (PNG as base64) beside it."""

    text: str
    is_error: bool = False
    images: Sequence[str] = ()


class Registry:
    """All tools, in the order in which they are listed."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}

    def add(
        self,
        description: str,
        arguments: type[A],
        *,
        tier: Tier,
        read_only: bool = False,
        in_turns: bool = False,
        frees: bool = False,
        name: str = "",
    ) -> Callable[[ToolFunction[A]], ToolFunction[A]]:
        """Register the decorated function under its own name, or under another that Python cannot give it."""

        def register(function: ToolFunction[A]) -> ToolFunction[A]:
            called = name or function.__name__
            self._tools[called] = Tool(called, description, arguments, function, tier, read_only, in_turns, frees)
            return function

        return register

    def tools(self, tier: Tier) -> list[Tool]:
        """List the tools of a tier."""
        shown = TIERS[: TIERS.index(tier) + 1]
        return [tool for tool in self._tools.values() if tool.tier in shown]

    async def call(self, service: Service, name: str, given: Mapping[str, Any] | None, caller: Caller) -> ToolOutcome:
        """Call a tool by name with arguments from a client; every failure becomes an outcome.

        Raises:
            InputRequired: the client must answer something first, and then repeat the call.
        """
        try:
            tool = self._find(name)
            arguments = _validated(tool, given or {})
            if arguments.session:
                caller = replace(caller, session=arguments.session)
            try:
                return await _called(tool, service, arguments, caller)
            except StoreFault as error:
                if not tool.frees or not is_disk_full(error):
                    raise
                with service.control.spare_room():
                    return await _called(tool, service, arguments, caller)
        except InputRequired:
            raise
        except Exception as error:
            return _failed(error)

    def _find(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFault(
                "unknown_tool",
                f"there is no tool {name[:80]!r}",
                "call one of `available`",
                name=name[:80],
                available=list(self._tools),
            )
        return tool


async def _called(tool: Tool, service: Service, arguments: Arguments, caller: Caller) -> ToolOutcome:
    session = await service.opened(caller)
    with service.sessions.use(session):
        outcome = await _outcome(tool, service, session, arguments, caller)
        if tool.in_turns:
            given = partial(arguments.model_dump, exclude={"session"}, exclude_defaults=True)
            service.turns.called(session, caller, tool.name, given, outcome.text)
        return outcome


async def _outcome(tool: Tool, service: Service, session: Session, arguments: Arguments, caller: Caller) -> ToolOutcome:
    try:
        answer = await _answer(tool, service, session, arguments, caller)
        return ToolOutcome(await service.render(session, answer), images=answer.images)
    except InputRequired:
        raise
    except Exception as error:
        if tool.frees and is_disk_full(error):
            raise
        return _failed(error)


async def _answer(tool: Tool, service: Service, session: Session, arguments: Arguments, caller: Caller) -> ToolAnswer:
    try:
        return await tool.function(service, session, arguments, caller)
    except ContentDamaged as damaged:
        if not await service.contexts.mend(session, damaged.digest, caller.handshake, caller.progress):
            raise
        return await tool.function(service, session, arguments, caller)


def _failed(error: Exception) -> ToolOutcome:
    return ToolOutcome(encode(_capped(fault_from(error).answer())), is_error=True)


def _validated(tool: Tool, given: Mapping[str, Any]) -> Arguments:
    # null means that the argument is not given: some models send every argument of a tool.
    there = {key: value for key, value in given.items() if value is not None}
    cleaned = {key: value if key in _UNCLEANED else clean(value) for key, value in there.items()}
    try:
        return tool.arguments.model_validate(cleaned)
    except ValidationError as error:
        said = "; ".join(_said(detail) for detail in error.errors(include_url=False, include_input=False))
        hint = f"call {tool.name} with the arguments listed in `accepted`"
        raise ToolFault("invalid_arguments", f"{tool.name}: {said}", hint, accepted=tool.accepted()) from error


def _said(detail: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    match detail["type"]:
        case "extra_forbidden":
            what = "unknown argument"
        case "value_error":  # one of ours, which pydantic keeps beside its own wording
            what = str(detail["ctx"]["error"])
        case _:
            what = detail["msg"]
    return f"{where}: {what}" if where else what


def _compact(part: Mapping[str, Any]) -> JsonObject:
    """Drop from a property its title, the null of an optional one, its bounds, and a default that is nothing.

    Each value keeps its type, and each array the type of its items: providers refuse the whole request otherwise.
    """
    kept = {key: value for key, value in part.items() if key not in {"title", "anyOf"}}
    for choice in part.get("anyOf", ()):
        if choice.get("type") != "null":
            kept |= choice
    unneeded = {"minimum", "exclusiveMinimum", "minLength", "maxLength", "maxItems", "additionalProperties"}
    if "enum" in kept or not kept.get("default"):  # the first of the texts is the default
        unneeded.add("default")
    return {key: value for key, value in kept.items() if key not in unneeded}


def _capped(said: JsonObject) -> JsonObject:
    """Return an error with long lists and messages shortened."""
    for key, value in said.items():
        if isinstance(value, list) and len(value) > _MOST_LISTED:
            said[key] = [*value[:_MOST_LISTED], f"… and {len(value) - _MOST_LISTED} more"]
        elif isinstance(value, str) and len(value) > _LONGEST_MESSAGE:
            said[key] = str(ShownShare(value[:_LONGEST_MESSAGE], len(value)))
    return said
