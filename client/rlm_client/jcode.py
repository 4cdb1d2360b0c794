"""The client of the context lock's protocol: `JCodeClient(context_lock_id).call_tool("jcode.lock", {...})`.

The policy limits the length of the tool's answer. This client reads the rest from the contexts that the answer names,
so that a program gets everything: at most a megabyte, compressed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

from rlm_client.client import Client
from rlm_ipc.messages import Json, JsonObject

if TYPE_CHECKING:
    from rlm_client.http_client import HttpClient

__all__ = ["JCodeClient"]

LARGEST = 1 << 20
"""The most bytes of a compressed answer."""
_LOCK = ("jcode.lock", "lock")
_PAGE_CHARS = 1_000_000
_NARROWED = ("path", "rules")
"""Arguments with which an answer is not the section as it is in its context."""


class JCodeClient:
    """A client that knows the project by one lock.

    ``context_lock_id`` is the caller's name for the lock: the first call with P0 binds it. The session is the
    environment's or the git root's unless named, as for every client. With ``url`` and ``token``, as `rlm-kernel serve`
    names them, it talks HTTP; then the session has to be named.
    """

    def __init__(self, context_lock_id: str, *, session: str | None = None, url: str = "", token: str = "") -> None:
        self.context_lock_id = context_lock_id
        self._client = _over_http(url, token, session) if url else Client(session)

    def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> JsonObject:
        """Call a tool; of the lock everything comes back that was asked for, with ``truncated`` if it is too much.

        Raises:
            ToolFailed: the tool answers with an error, such as LOCK_NOT_FOUND; its ``answer`` says what to do.
        """
        given = dict(arguments or {})
        if name not in _LOCK:
            return self._client.call(name, **given)
        answer = self._client.call("lock", **given)
        content, meta = answer["content"], answer["meta"]
        for key, context in dict(meta.get("cut", {})).items():
            if context == f"lock_{key}" and not any(given.get(narrowed) for narrowed in _NARROWED):
                content[key] = self._whole(context)
                del meta["cut"][key]
        if "cut" in meta and not meta["cut"]:
            del meta["cut"]
        return _within_bounds(answer)

    def close(self) -> None:
        """Close the connection; the session is kept."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _whole(self, context: str) -> Json:
        """Read a section whole, page by page."""
        lines: list[str] = []
        more = True
        while more:
            page = self._client.call("peek", name=context, offset=len(lines), max_chars=_PAGE_CHARS)
            lines += page["content"].split("\n")
            more = page["has_more"]
        return json.loads("\n".join(lines))


def _over_http(url: str, token: str, session: str | None) -> HttpClient:
    from rlm_client.http_client import HttpClient  # the official client takes half a second to import

    return HttpClient(url, token, session)


def _within_bounds(answer: JsonObject) -> JsonObject:
    """Cut the longest lists by half until the answer is small enough."""
    while len(zlib.compress(json.dumps(answer).encode())) > LARGEST:
        longest = max(_lists(answer["content"]), key=len)
        del longest[len(longest) // 2 :]
        answer["truncated"] = True
    return answer


def _lists(value: Json) -> Iterator[list[Json]]:
    if isinstance(value, list):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(inner, dict | list):
            yield from _lists(inner)
