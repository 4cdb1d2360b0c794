"""What `load_context` is given to load: one file, several, a directory, a pattern, checked against the policy."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlm_kernel import rendezvous
from rlm_kernel.contexts.errors import SourceError
from rlm_kernel.contexts.model import StoredText
from rlm_kernel.contexts.sources import Loaded, put_file, put_files, put_url
from rlm_kernel.contexts.store import ContextStore
from rlm_mcp.hello import ClientHello
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.progress import patiently
from rlm_mcp.service.sessions import Session
from rlm_mcp.service.texts import SYSTEM_FOLDERS, readable_path
from rlm_sandbox.policy_urls import READ_SCHEMES, instead, is_url, permits, unread_scheme, wrong_form
from rlm_sandbox.url_forms import repository_of

__all__ = ["FileSource", "Taken", "resolved", "take"]

_MOST_MATCHES = 10_000
"""Files that a pattern may name."""
_NO_URLS = "it permits none: choose (RLM_KERNEL_POLICY) or write one whose field `urls` names what the URL begins with"


@dataclass(frozen=True)
class FileSource:
    """Files to load.

    Attributes:
        given: what was asked for, made absolute, to be asked for again.
        paths: what it stands for, resolved and permitted.
        refused: how many files a pattern matched that may not be read.
        urls: the prefixes that the policy permits, if ``given`` is a URL.
    """

    given: list[str]
    paths: list[Path]
    refused: int = 0
    urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class Taken:
    """A stored text, the metadata that its origin adds, and its table of files if it has one."""

    text: StoredText
    notes: dict[str, Any] = field(default_factory=dict)
    table: str = ""


def resolved(given: Sequence[str], session: Session, hello: ClientHello) -> FileSource:
    """Resolve paths and patterns.

    Raises:
        ToolFault: one of the paths may not be read, or a pattern matches nothing.
    """
    if any(map(is_url, given)):
        return _permitted(given, session)
    asked: list[str] = []
    paths: list[Path] = []
    refused = 0
    for one in given:
        fixed = _before_pattern(one)
        if fixed is None:
            path = readable_path(one, session, hello)
            asked.append(str(path))
            paths.append(path)
            continue
        base = readable_path(fixed or ".", session, hello)
        pattern = f"{glob.escape(str(base))}{os.sep}{one[len(fixed) :].lstrip(os.sep)}"
        asked.append(pattern)
        matches, denied = _matching(pattern, session, hello)
        refused += denied
        paths += matches
        if not matches:
            raise ToolFault("cannot_read", f"no file matches {one[:200]!r}", "give a path or a pattern of files")
    return FileSource(asked, list(dict.fromkeys(paths)), refused)


def _permitted(given: Sequence[str], session: Session) -> FileSource:
    """A URL, if the policy permits it."""
    if len(given) != 1:
        raise ToolFault("cannot_read", "a URL stands alone, it cannot be one of several paths", "load each by itself")
    [url] = given
    if unread := unread_scheme(url):
        said = f"{url[:200]!r} has the scheme {unread!r}, and of URLs only {', '.join(READ_SCHEMES)} are read"
        raise ToolFault("cannot_read", said, instead(unread))
    if wrong := wrong_form(url):
        raise ToolFault("cannot_read", f"{url[:200]!r} {wrong}", "give it so, or the https URL of the same data")
    prefixes = session.policy.urls
    if not permits(prefixes, url):
        said = f"policy {session.row.policy!r} does not permit to load {url[:200]!r}"
        hint = f"load what lies under one of: {', '.join(prefixes)}" if prefixes else _NO_URLS
        whole = repository_of(url)
        raise ToolFault("cannot_read", said, f'{hint}; all of it is `urls: ["{whole}"]`' if whole else hint)
    return FileSource([url], [], urls=prefixes)


def _before_pattern(given: str) -> str | None:
    """The directory before the first wildcard; None for a path without one, and for a file that is so called."""
    if not glob.has_magic(given) or len(given) > 4095 or "\0" in given or os.path.lexists(os.path.expanduser(given)):
        return None
    steady = given
    while glob.has_magic(steady):
        steady = os.path.dirname(steady)
    return steady


def _matching(pattern: str, session: Session, hello: ClientHello) -> tuple[list[Path], int]:
    found: list[Path] = []
    denied = 0
    for match in sorted(glob.iglob(pattern, recursive=True)):
        if os.path.isdir(match):
            continue
        try:
            found.append(readable_path(match, session, hello))
        except ToolFault:
            denied += 1
        if len(found) > _MOST_MATCHES:
            raise ToolFault("cannot_read", f"more than {_MOST_MATCHES:,} files match", "use a narrower pattern")
    return found, denied


async def take(files: ContextStore, source: FileSource, limit: int) -> Taken:
    """Store what the paths hold; raises SourceError or TextTooLarge."""
    return await patiently(_take, files, source, limit)


def _take(files: ContextStore, source: FileSource, limit: int) -> Taken:
    if source.urls:
        loaded = put_url(files, source.given[0], source.urls, limit)
        return Taken(loaded.text, {"path": source.given[0], **_told(loaded)}, loaded.table)
    single = len(source.given) == len(source.paths) == 1 and source.given[0] == str(source.paths[0])
    notes: dict[str, Any] = {"path": source.given[0]} if len(source.given) == 1 else {"paths": source.given}
    if single and not source.paths[0].is_dir():
        loaded = put_file(files, source.paths[0], limit)
    else:
        missing = next((path for path in source.paths if not path.exists()), None)
        if missing is not None:
            raise SourceError(f"{missing}: no such file", "give paths of readable, regular files")
        skipped = Counter({"not permitted": source.refused} if source.refused else {})
        loaded = put_files(files, source.paths, _Private(), limit, skipped)
    return Taken(loaded.text, {**notes, **_told(loaded)}, loaded.table)


def _told(loaded: Loaded) -> dict[str, Any]:
    if loaded.table:
        return {"files": {"count": loaded.files, "skipped": loaded.skipped}}
    if loaded.shape is not None:
        return {"table": loaded.shape}
    return {"compression": loaded.compression} if loaded.compression else {}


class _Private:
    """Whether a directory below is the system's or ours, from which nothing is loaded."""

    def __init__(self) -> None:
        ours = (rendezvous.state_folder(), rendezvous.runtime_folder(), str(rendezvous.config_dir()))
        self._roots = {Path(os.path.realpath(root)) for root in (*SYSTEM_FOLDERS, *ours)}

    def __call__(self, path: Path) -> bool:
        return path in self._roots
