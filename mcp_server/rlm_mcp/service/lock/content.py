"""Shows the sections of a lock in an answer: everything if there is room, else the beginning of each long list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rlm_ipc.messages import Json, JsonObject
from rlm_lock.protocol import Difference
from rlm_mcp.service.tool_answers import encode

_MOST_ITEMS = 100
"""The most items of a list that an answer shows, above all directories."""
_LONGEST_TEXT = 600
"""Characters of a text in a section if not everything fits."""
_FEWEST = 3
_NOT_PARSED = "unknown: the file was not parsed in both versions"


def stamp(seconds: float) -> str:
    """Write a time of the epoch as documents of the protocol do: to the second, in UTC."""
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"


def counts(project: Mapping[str, Any]) -> JsonObject:
    """Return the counts of a project, for a quick check."""
    found: JsonObject = {}
    for name in ("files", "directories"):
        part = project.get(name)
        if isinstance(part, dict):
            found[name] = {key: value for key, value in part.items() if type(value) is int}
    return found


def difference(found: Difference) -> JsonObject:
    """Return what changed between two versions, as answers show it."""
    changes: list[JsonObject] = []
    for change in found.changes:
        entry: JsonObject = {"path": change.path, "change": change.change.value}
        if change.added:
            entry["added"] = list(change.added)
        if change.removed:
            entry["removed"] = list(change.removed)
        if not change.is_parsed:
            entry["definitions"] = _NOT_PARSED
        changes.append(entry)
    return {"before": found.before or None, "after": found.after, "count": found.count, "changes": changes}


def shortened(content: Mapping[str, JsonObject | str], room: int) -> tuple[JsonObject, list[str]]:
    """Return the content in about ``room`` characters of JSON at most, and the keys of shortened parts.

    The longest lists are cut first, then long texts. A text at the top level, which is a map, is never cut: it has the
    requested size.
    """
    shown: JsonObject = {key: _copied(value) for key, value in content.items()}
    cut: dict[str, None] = {}
    for key, value in shown.items():
        for holder, name in list(_inside(value, list)):
            if len(holder[name]) > _MOST_ITEMS:
                del holder[name][_MOST_ITEMS:]
                cut[key] = None
    while len(encode(shown)) > room:
        longest = max(_candidates(shown), key=lambda one: one[0], default=None)
        if longest is None:
            break
        _, key, holder, name = longest
        value = holder[name]
        holder[name] = value[: len(value) // 2] if isinstance(value, list) else f"{value[: _LONGEST_TEXT // 2]}…"
        cut[key] = None
    return shown, list(cut)


def _candidates(shown: JsonObject) -> Iterator[tuple[int, str, Any, Any]]:
    """Yield what may be cut: its length, its key, and its parent."""
    for key, value in shown.items():
        for holder, name in _inside(value, list):
            if len(holder[name]) > _FEWEST:
                yield len(encode({"": holder[name]})), key, holder, name
        for holder, name in _inside(value, str):
            if len(holder[name]) > _LONGEST_TEXT:
                yield len(holder[name]), key, holder, name


def _inside(value: Json, kind: type[list[Json] | str]) -> Iterator[tuple[Any, Any]]:
    """Yield each list or each text inside a value by what holds it."""
    left = [value]
    while left:
        holder = left.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for name, inner in list(items):
            if isinstance(inner, kind):
                yield holder, name
            if isinstance(inner, dict | list):
                left.append(inner)


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
