"""The schemas of the tools stay within what every provider of models takes.

A provider refuses a whole request for one schema that it does not take: OpenAI an array without `items`, Google a value
without `type`, a choice that is no text, and an empty one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlm_mcp.front.cached_answers import FIRST_ANSWERS
from rlm_mcp.tools.catalogue import TOOLS

LISTED = {"type", "properties", "required", "items", "enum", "default", "description", "anyOf"}
"""The keywords that all of them take."""


def parts(schema: dict[str, Any], where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and all that it holds, each with where it is."""
    yield where, schema
    for name, part in schema.get("properties", {}).items():
        yield from parts(part, f"{where}.{name}")
    if "items" in schema:
        yield from parts(schema["items"], f"{where}[]")
    for number, choice in enumerate(schema.get("anyOf", ())):
        yield from parts(choice, f"{where}|{number}")


def refused(schema: dict[str, Any]) -> list[str]:
    """Say what a strict provider refuses in a schema."""
    problems = []
    for where, part in parts(schema, ""):
        if not isinstance(part.get("type"), str) and "anyOf" not in part:
            problems.append(f"{where} has no type")
        if part.get("type") == "array" and "items" not in part:
            problems.append(f"{where} has no items")
        if "enum" in part and (part.get("type") != "string" or not all(part["enum"])):
            problems.append(f"{where} has choices that are no texts")
        problems += [f"{where} has {keyword}" for keyword in part.keys() - LISTED]
    return problems


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS.tools("compat")])
def test_a_strict_provider_takes_the_schema(tool: str) -> None:
    """A client that hands schemas to its provider as they are loses all tools by one that is refused."""
    (schema,) = (one.schema for one in TOOLS.tools("compat") if one.name == tool)
    assert refused(schema) == []


def test_the_lists_that_the_front_has_stored_are_as_strict() -> None:
    """The first list comes from a file, before any daemon runs."""
    answers = json.loads(Path(FIRST_ANSWERS).read_text(encoding="utf-8"))["answers"]
    lists = [answer["tools"] for key, answer in answers.items() if key.endswith('"tools/list"]')]
    assert lists
    assert [found for tools in lists for tool in tools for found in refused(tool["inputSchema"])] == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "array", "items": {}},
        {"type": "object", "properties": {"a": {"enum": ["x"]}}},
        {"type": "integer", "enum": [1]},
        {"type": "string", "enum": [""]},
        {"type": ["string", "null"]},
        {"type": "string", "format": "uri"},
        {"anyOf": [{"type": "array"}]},
    ],
    ids=json.dumps,
)
def test_what_providers_refuse_is_found(schema: dict[str, Any]) -> None:
    """A check that has never failed is not yet a check."""
    assert refused(schema)
