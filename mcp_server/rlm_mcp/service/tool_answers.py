"""Answers: one text of compact JSON, without lone surrogates, at most ``answer_chars`` of the policy long.

A long text is cut to its head and tail around a marker that names the context with the whole text. The answer then
says ``cut``, and so does each shortened item of a list. A query's prompt is never cut: it is complete, or it is read by
the query's id.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rlm_contexts.shares import ShownShare
from rlm_ipc.messages import Json, JsonObject

_SURROGATES = re.compile("[\ud800-\udfff]")
_SHORTEST_PREVIEW = 160
"""Characters of a field that are always kept, including the marker."""
_LONG = 400
"""A field with more characters of JSON is stored whole."""
_ITEM_TEXTS = (1000, 300, 100)
"""Characters left of each text in a long list, in steps, before items are dropped."""
_TRUNCATED = len(',"truncated":true')
_PROMPT = "prompt"
_REST = "full_output"
"""Where the rest of an item is: in the context that the answer names in this field."""
_HEAD_SHARE = 0.6
"""The share of the head in a preview: the start of an output shows its kind, the end has errors."""
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


@dataclass
class ToolAnswer:
    """The answer of a tool.

    ``cuttable`` names the fields (texts or lists) that may be shortened, the one to cut first in front.
    ``spool`` is a file with the whole of the first field, if the field is already incomplete. ``parts`` are separate
    answers: those of the cells of a batch.
    """

    fields: JsonObject
    cuttable: tuple[str, ...] = ()
    spool: Path | None = None
    limit: int | None = None
    """Characters that this answer may have; None: the policy's answer_chars."""
    images: Sequence[str] = ()
    """PNG pictures as base64, sent beside the text."""
    parts: Sequence[ToolAnswer] = ()
    text: str | None = field(default=None)
    """The rendered text: the same run may be asked for twice."""


def clean_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot carry, by U+FFFD."""
    return _SURROGATES.sub("\ufffd", text) if not text.isascii() else text


def clean(value: Json) -> Json:
    """Replace lone surrogates in every text inside a JSON value."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): clean(item) for key, item in value.items()}
    return value


def encode(fields: JsonObject) -> str:
    """Write compact JSON; characters beyond ASCII stand for themselves, which saves tokens."""
    return clean_text(_COMPACT.encode(fields))


def encoded_length(text: str) -> int:
    """Return how many characters ``text`` takes inside a JSON string."""
    return len(_COMPACT.encode(text)) - 2


def moment(seconds: float) -> str:
    """Write a time of the epoch as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def fit(fields: JsonObject, cuttable: Sequence[str], limit: int, whole: str) -> str:
    """Encode ``fields``, cutting the ``cuttable`` ones until the text has at most ``limit`` characters.

    No field is cut below its share of half the room while another one is larger, and no query is dropped while
    anything else can be. ``whole`` is the name of the context with everything; it becomes ``full_output``.
    """
    shown = {**fields, "cut": True, "full_output": whole}
    for share, name in itertools.product((limit // (2 * max(len(cuttable), 1)), 0), cuttable):
        over = len(encode(shown)) - limit
        if over <= 0:
            break
        value = shown.get(name)
        excess = min(over, len(encode({"": value})) - share)
        if excess <= 0:
            continue
        if name == _PROMPT:
            shown = _without_prompt(shown)
            continue
        shorter = _shorter(value, excess, whole, every_query=share > 0)
        if len(encode({name: shorter})) < len(encode({name: value})):
            shown[name] = shorter
            if isinstance(value, list) and len(shorter) < len(value):
                shown["truncated"] = True
    text = encode(shown)
    if len(text) <= limit:
        return text
    return encode({**_tiny_fields(shown), "truncated": True})


def whole_of(fields: JsonObject, cuttable: Sequence[str]) -> str:
    """Write the long ones of the cuttable fields as one text: one as it is, several under headings."""
    held = [(name, fields[name]) for name in cuttable if fields.get(name)]
    held = [part for part in held if len(encode({"": part[1]})) > _LONG] or held
    if len(held) == 1:
        return _as_text(held[0][1])
    return "\n".join(f"--- {name} ---\n{_as_text(value)}" for name, value in held)


def _as_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(item if isinstance(item, str) else encode({"": item})[4:-1] for item in value)
    return json.dumps(value, ensure_ascii=False, indent=1, default=str)


def _shorter(value: Json, excess: int, whole: str, *, every_query: bool) -> Json:
    if isinstance(value, str):
        return _preview(value, max(encoded_length(value) - excess, _SHORTEST_PREVIEW), whole)
    if isinstance(value, list):
        return _first_items(value, excess + _TRUNCATED, every_query)
    return value


def _preview(text: str, room: int, whole: str) -> str:
    """Head and tail of ``text`` in ``room`` encoded characters."""
    marker = f"\n…[{len(text):,} characters, cut here; read all with peek or scan of {whole!r}]…\n"
    room -= encoded_length(marker)
    head, tail = int(room * _HEAD_SHARE), int(room * (1 - _HEAD_SHARE))
    # Newlines, quotes and control characters take more than one character: cut on until it fits.
    while head > 0 and encoded_length(text[:head]) > room * _HEAD_SHARE:
        head -= max(1, head // 16)
    while tail > 0 and encoded_length(text[-tail:]) > room * (1 - _HEAD_SHARE):
        tail -= max(1, tail // 16)
    return text[: max(head, 0)] + marker + (text[-tail:] if tail > 0 else "")


def _first_items(items: list[Json], excess: int, every_query: bool) -> list[Json]:
    """The items without ``excess`` encoded characters: long texts in them are shortened, then the last go.

    So a match keeps its line number, and a pending query its id, with its whole prompt or none. With ``every_query``,
    only prompts make room.
    """
    room = len(encode({"": items})) - excess
    if any(_is_query(item) for item in items):
        named = _queries(items, room)
        return named if every_query else _dropped(named, room)
    kept = items
    for longest in _ITEM_TEXTS:
        kept = [_clipped(item, longest) for item in items]
        if len(encode({"": kept})) <= room:
            return kept
    return _dropped(kept, room)


def _dropped(items: list[Json], room: int) -> list[Json]:
    """The first items that take at most ``room`` encoded characters together."""
    kept, excess = list(items), len(encode({"": items})) - room
    while kept and excess > 0:
        excess -= len(encode({"": kept.pop()})) - 4
    return kept


def _is_query(item: Json) -> bool:
    return isinstance(item, dict) and "id" in item and isinstance(item.get(_PROMPT), str)


def _queries(items: list[Json], room: int) -> list[Json]:
    """Every query, the first ones with their prompts as long as there is room for these, the others without."""
    kept = [_without_prompt(item) for item in items]
    room -= len(encode({"": kept}))
    for at, item in enumerate(items):
        more = len(encode({"": item})) - len(encode({"": kept[at]}))
        if more <= max(room, 0):
            kept[at] = item
            room -= more
    return kept


def _without_prompt(query: JsonObject) -> JsonObject:
    """A query whose prompt is read by its id."""
    if not _is_query(query):
        return query
    kept = {key: value for key, value in query.items() if key != _PROMPT and value is not None}
    return {**kept, "cut": True, "chars": len(query[_PROMPT]), "rest": f"peek({query['id']!r})"}


def _clipped(item: Json, longest: int) -> Json:
    """Return the item with its texts cut to ``longest`` characters; mappings in it then say ``cut``."""
    if isinstance(item, ShownShare | str):
        text = item if isinstance(item, ShownShare) else ShownShare(item, len(item))
        return item if len(text.text) <= longest else text.shorter(longest)
    if isinstance(item, list):
        return [_clipped(part, longest) for part in item]
    if isinstance(item, dict):
        kept = {key: _clipped(part, longest) for key, part in item.items()}
        return item if kept == item else {"rest": _REST, **kept, "cut": True}
    return item


def _tiny_fields(fields: JsonObject) -> JsonObject:
    return {key: _tiny(value) for key, value in fields.items()}


def _tiny(value: Json) -> Json:
    """Return the shortest form, if even previews do not fit: a little of each text, two items of each list."""
    if isinstance(value, ShownShare | str):
        return _clipped(value, _SHORTEST_PREVIEW // 2) if len(str(value)) > _SHORTEST_PREVIEW else value
    if isinstance(value, list):
        return [_tiny(item) for item in value[:2]]
    if isinstance(value, dict):
        return _tiny_fields(dict(list(_without_prompt(value).items())[:8]))
    return value
