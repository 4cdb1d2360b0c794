"""JSON and TOML of a hostile repository: bounded, and read without trusting any type."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from rlm_lock.sections.manifests.model import Unreadable

DEEPEST = 200
_MOST_DOTS = 400
"""Maximum dots in one line of TOML: the time for a key with many parts grows with their square."""

_NOTHING: Mapping[str, object] = {}


def json_table(source: str) -> Mapping[str, object]:
    """Return the object in a JSON text."""
    try:
        value: object = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"This is no JSON that can be read: {_reason(error)}.") from None
    return _whole(value)


def toml_table(source: str) -> Mapping[str, object]:
    """Return the table in a TOML text."""
    import tomllib  # the daemon reads no manifest, only what was found in them

    if any(line.count(".") > _MOST_DOTS for line in source.splitlines()):
        raise Unreadable("A line of it has too many dots.")
    try:
        value: object = tomllib.loads(source)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"This is no TOML that can be read: {_reason(error)}.") from None
    return _whole(value)


def _reason(error: Exception) -> str:
    return "it is nested too deep" if isinstance(error, RecursionError) else str(error)[:100]


def _whole(value: object) -> Mapping[str, object]:
    """Refuse a document that is not a table, or is nested deeper than can be walked safely."""
    level: list[object] = [value]
    for _ in range(DEEPEST):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            break
    else:
        raise Unreadable(f"It is nested deeper than {DEEPEST} levels.")
    if not isinstance(value, dict):
        raise Unreadable("It holds no table of names and values.")
    return value


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def table(value: object, *keys: str) -> Mapping[str, object]:
    """Return the table under these keys; an empty one if there is none."""
    found = _at(value, keys)
    return found if isinstance(found, dict) else _NOTHING


def text(value: object, *keys: str) -> str:
    """Return the string under these keys; empty if there is none."""
    found = _at(value, keys)
    return found if isinstance(found, str) else ""


def texts(value: object, *keys: str) -> list[str]:
    """Return the strings in the list under these keys; one string is a list of one."""
    found = _at(value, keys)
    if isinstance(found, str):
        return [found]
    return [part for part in found if isinstance(part, str)] if isinstance(found, list) else []


def _at(value: object, keys: tuple[str, ...]) -> object:
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value
