"""One table of tools: the Python methods, the commands and the page's calls take what the tools take."""

from __future__ import annotations

import dataclasses
import inspect
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

import pytest
from pydantic import BaseModel
from typer.models import ArgumentInfo, OptionInfo

from rlm_client import calls
from rlm_client.async_client import AsyncClient
from rlm_client.client import Client
from rlm_mcp.cli import sessions
from rlm_mcp.service.queries.answering import GivenAnswer
from rlm_mcp.tools.arguments import Arguments
from rlm_mcp.tools.catalogue import TOOLS
from rlm_mcp.web.api import DEEDS

METHODS = {tool.name: tool for tool in TOOLS.tools("all")}
"""The tools that are methods of a client; those for agents that know other names are not."""
BESIDES = {"call", "pending_queries", "pipeline"}
"""What a client has besides: any tool by its name, the prompts that an answer had to cut, and a batch for eval_code."""
COMMANDS: dict[str, tuple[str, Callable[..., None], dict[str, str]]] = {
    "load": ("load_context", sessions.load, {"name": "name", "paths": "path", "kind": "content_type"}),
    "refresh": ("refresh", sessions.refresh, {"name": "name"}),
    "query": ("query", sessions.query, {"names": "name", "sql": "sql"}),
    "run": ("eval_code", sessions.run, {"code": "code"}),
    "answer": ("answer_queries", sessions.answer, {}),
    "fork": ("fork_session", sessions.fork, {"name": "name", "policy": "policy"}),
}
"""The commands that call a tool, and which of its arguments each of their own is."""
OWN = {"session", "as_json"}
"""What every command has."""
OPENED = {("load", "policy"), ("run", "policy")}
"""The policy of a session that a command opens, which an agent's client names in its environment."""
INSTEAD = {("load", "command"), ("answer", "query"), ("answer", "text"), ("fork", "new")}
"""A command's own way to say an argument: what a command line prints; an answer by its query's id; a name without its
option."""
READ = {("run", "code"), ("load", "paths")}
"""What a command reads from standard input when it is not given."""
PAGE = {"interrupt": "interrupt", "rollback": "rollback", "fork": "fork_session"}
"""The page's calls that take a tool's arguments; its `answer` takes one item of answer_queries."""


def kinds(hint: Any) -> set[str]:
    """Return the JSON types that an annotation takes."""
    if typing.get_origin(hint) is typing.Annotated:
        return kinds(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (Union, types.UnionType):
        return set().union(*map(kinds, typing.get_args(hint)))
    if typing.get_origin(hint) is Literal:
        return {f"one of {sorted(typing.get_args(hint))}"}
    plain = typing.get_origin(hint) or hint
    if plain in (list, tuple, Sequence):
        (item, *_) = typing.get_args(hint)
        return {f"list of {' or '.join(sorted(kinds(item)))}"}
    named = {str: "text", os.PathLike: "text", int: "number", bool: "flag", types.NoneType: "nothing"}
    return {named.get(plain) or {dict: "object", Mapping: "object"}.get(plain) or {Any: "anything"}[plain]}


def taken(arguments: type[Arguments]) -> dict[str, tuple[set[str], bool]]:
    """Return the types of a tool's arguments, and whether each must be given."""
    hints = typing.get_type_hints(arguments)
    fields = {name: part for name, part in arguments.model_fields.items() if name != "session"}
    return {name: (kinds(hints[name]), part.is_required()) for name, part in fields.items()}


@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_every_tool_is_a_method_of_the_client_and_every_method_a_tool(client: type) -> None:
    """A tool that is added is missing in no client; one that is renamed is renamed in all."""
    public = {name for name in vars(client) if not name.startswith("_")} - {"close", "aclose"} - BESIDES
    assert public == METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_its_tool_takes(name: str) -> None:
    """By name, type and need. A method may take a single text for a list of them, as the tools do."""
    make = getattr(calls, name)
    hints, wanted = typing.get_type_hints(make), taken(METHODS[name].arguments)
    parameters = inspect.signature(make).parameters
    assert parameters.keys() == wanted.keys()
    for argument, (types_, is_required) in wanted.items():
        given = kinds(hints[argument])
        assert (parameters[argument].default is inspect.Parameter.empty) == is_required, argument
        assert types_ <= given | {"nothing"}, argument
        more = given - types_ - ({"nothing"} if not is_required else set())
        assert more <= ({"text"} if "list of text" in types_ else set()), argument


@pytest.mark.parametrize("name", METHODS)
def test_a_default_of_a_method_is_its_tools(name: str) -> None:
    """What nobody says means the same wherever it is not said."""
    fields = METHODS[name].arguments.model_fields
    for argument, parameter in inspect.signature(getattr(calls, name)).parameters.items():
        if parameter.default not in (inspect.Parameter.empty, None):
            default = fields[argument].get_default(call_default_factory=True)
            assert parameter.default == (tuple(default) if isinstance(default, list) else default), argument


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_takes_what_its_tool_takes(command: str) -> None:
    """Each option is an argument of the tool, of its type, and every argument that must be given is asked for."""
    tool, function, named = COMMANDS[command]
    hints, wanted = typing.get_type_hints(function, include_extras=True), taken(METHODS[tool].arguments)
    parameters = inspect.signature(function).parameters
    assert parameters.keys() - OWN - {own for at, own in INSTEAD | OPENED if at == command} == named.keys()
    for own, argument in named.items():
        types_, is_required = wanted[argument]
        asked = {"text" if kind.startswith("one of ") and "text" in types_ else kind for kind in kinds(hints[own])}
        assert asked - {"nothing"} <= types_, own
        is_asked = parameters[own].default is inspect.Parameter.empty
        assert is_asked == is_required or (command, own) in READ, own
        (info,) = (part for part in hints[own].__metadata__ if isinstance(part, ArgumentInfo | OptionInfo))
        assert info.help, own
    said_otherwise = {"load": set(), "answer": {"answers"}}.get(command, set())
    assert {name for name, (_, is_required) in wanted.items() if is_required} <= {*named.values(), *said_otherwise}


@pytest.mark.parametrize("call", DEEDS)
def test_a_call_of_the_page_takes_what_its_tool_takes(call: str) -> None:
    """Type, bounds and default of each field are the tool's: the page refuses nothing that an agent may ask."""
    body = schema_of(DEEDS[call][0])
    if call in PAGE:
        tool = schema_of(METHODS[PAGE[call]].arguments)
        assert body.items() <= tool.items()
    else:
        assert body.keys() == {"id", "answer", "error"} <= {field.name for field in dataclasses.fields(GivenAnswer)}


def schema_of(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each field, without its title."""
    parts = model.model_json_schema().get("properties", {})
    return {name: {key: value for key, value in part.items() if key != "title"} for name, part in parts.items()}


def test_a_type_that_differs_would_be_seen() -> None:
    """The comparison is no tautology."""
    assert kinds(list[str] | None) == {"list of text", "nothing"}
    assert kinds(typing.Annotated[dict[str, Any], "note"]) == kinds(Mapping[str, int]) == {"object"}
    assert kinds(Sequence[Literal["b", "a"]]) == kinds(list[Literal["a", "b"]]) != kinds(list[Literal["a"]])
