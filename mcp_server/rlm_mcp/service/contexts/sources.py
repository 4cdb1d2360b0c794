"""The sources of `load_context`: one class for each kind, and the step that picks one for a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.service.errors import ToolFault
from rlm_sandbox.policy.urls import instead, is_url, unread_scheme


@dataclass(frozen=True, slots=True)
class Inline:
    """Text that came with the call."""

    text: str


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of files and directories, and patterns, as the client wrote them."""

    given: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Url:
    """One URL."""

    url: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A name in the session: a variable of code, or a loaded text or handle, which gets another name."""

    name: str


Source = Inline | Files | Url | Variable


@dataclass(frozen=True, slots=True)
class Load:
    """One load: the name, the source, and the client's description of the text."""

    name: str
    source: Source
    content_type: str = "custom"
    metadata: Mapping[str, Any] | None = None


def resolve(content: str | None, paths: Sequence[str] | None, variable: str | None) -> Source:
    """Return the source of a call; exactly one of the three is given. Reads nothing.

    Raises:
        ToolFault: a URL is one of several paths, or no URL that is read here.
    """
    if content is not None:
        return Inline(content)
    if paths is None:
        return Variable(variable or "")
    return _url(paths) if any(map(is_url, paths)) else Files(tuple(paths))


def resolve_again(name: str, metadata: Mapping[str, Any]) -> Source:
    """Return the files or the URL that a context came from.

    Raises:
        ToolFault: it came from neither, or a client has replaced the record of it.
    """
    paths = metadata.get("paths", [metadata.get("path")])
    if not isinstance(paths, list) or not all(isinstance(path, str) and _is_place(path) for path in paths):
        said = f"{name!r} was not loaded from a file, so it cannot be reloaded"
        raise ToolFault("cannot_read", said, "load it under the same name with load_context")
    return resolve(None, paths, None)


def _url(given: Sequence[str]) -> Url:
    if len(given) != 1:
        raise ToolFault("cannot_read", "a URL cannot be one of several paths", "load each URL separately")
    [url] = given
    if unread := unread_scheme(url):
        raise ToolFault(
            "cannot_read", f"{url[:200]!r} has the scheme {unread!r}, which cannot be loaded", instead(unread)
        )
    return Url(url)


def _is_place(path: str) -> bool:
    return is_url(path) or Path(path).is_absolute()
