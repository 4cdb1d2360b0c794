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
from rlm_kernel.contexts.errors import OutOfReach, SourceError
from rlm_kernel.contexts.model import StoredText
from rlm_kernel.contexts.patterns import Pattern
from rlm_kernel.contexts.places import Reach
from rlm_kernel.contexts.sources import Loaded, put_files, put_place, put_url
from rlm_kernel.contexts.store import ContextStore
from rlm_mcp.hello import ClientHello
from rlm_mcp.service.errors import ToolFault
from rlm_mcp.service.progress import patiently
from rlm_mcp.service.sessions import Session
from rlm_sandbox.policy import resolve
from rlm_sandbox.policy_urls import READ_SCHEMES, instead, is_url, permits, unread_scheme, wrong_form
from rlm_sandbox.url_forms import repository_of

__all__ = ["Taken", "take"]

_LONGEST_PATH = 4095
"""Characters of a path that Linux takes."""
_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_NO_SCRATCH = "/nonexistent"
"""Stands for the scratch folder, which is no remote client's business."""
_NO_URLS = "it permits none: choose (RLM_KERNEL_POLICY) or write one whose field `urls` names what the URL begins with"


@dataclass(frozen=True)
class Taken:
    """A stored text, the metadata that its origin adds, and its table of files if it has one."""

    text: StoredText
    notes: dict[str, Any] = field(default_factory=dict)
    table: str = ""


async def take(files: ContextStore, given: Sequence[str], session: Session, hello: ClientHello, limit: int) -> Taken:
    """Store what paths, patterns or a URL stand for.

    All of it happens in a thread: a folder may be endless, and a file system may not answer.

    Raises:
        ToolFault: what was given is no path, or the policy does not permit the URL.
        SourceError: one of the paths may not or cannot be read, or a pattern matches nothing.
        TextTooLarge: there is more than ``limit`` bytes.
    """
    return await patiently(_take, files, given, session, hello, limit)


def _take(files: ContextStore, given: Sequence[str], session: Session, hello: ClientHello, limit: int) -> Taken:
    if any(map(is_url, given)):
        url = _permitted(given, session)
        loaded = put_url(files, url, session.policy.urls, limit)
        return Taken(loaded.text, {"path": url, **_told(loaded)}, loaded.table)
    wanted = _Wanted(_reach_of(session, hello))
    places = [(one, _absolute(one, session, hello)) for one in given]
    if len(places) == 1 and not wanted.is_pattern(*places[0]):
        with wanted.reach.opened(places[0][1]) as place:
            if not place.is_folder:
                loaded = put_place(files, place, limit)
                return Taken(loaded.text, {"path": str(place.path), **_told(loaded)}, loaded.table)
    for one, path in places:
        wanted.add(one, path)
    notes: dict[str, Any] = {"path": wanted.asked[0]} if len(given) == 1 else {"paths": wanted.asked}
    skipped = Counter({"not permitted": wanted.refused} if wanted.refused else {})
    loaded = put_files(files, wanted.paths, wanted.reach, limit, skipped)
    return Taken(loaded.text, {**notes, **_told(loaded)}, loaded.table)


class _Wanted:
    """Files that are to be loaded together.

    Attributes:
        reach: what may be read.
        asked: what was asked for, to be asked for again.
        paths: what it stands for.
        refused: how many of what a pattern met may not be read.
    """

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.asked: list[str] = []
        self.paths: list[Path] = []
        self.refused = 0

    def is_pattern(self, given: str, path: Path) -> bool:
        """Whether what was given has wildcards, and is not the name of a file or folder.  Raises: OutOfReach."""
        if not glob.has_magic(given):
            return False
        try:
            with self.reach.opened(path):
                return False
        except OutOfReach:
            raise
        except SourceError:
            return True

    def add(self, given: str, path: Path) -> None:
        """Look up what a path or pattern stands for.  Raises: SourceError."""
        if not self.is_pattern(given, path):
            with self.reach.opened(path) as place:
                self.asked.append(str(place.path))
                self.paths.append(place.path)
            return
        plain = len(path.parts) - len(Path(os.path.expanduser(given)).parts)  # the client's folder is no pattern
        first = next(at for at, part in enumerate(path.parts) if at >= plain and glob.has_magic(part))
        rest = os.sep.join(path.parts[first:])
        with self.reach.opened(Path(*path.parts[:first])) as folder:
            self.asked.append(f"{glob.escape(str(folder.path))}{os.sep}{rest}")
            pattern = Pattern(self.reach, rest)
            found = pattern.files(folder)
        self.refused += pattern.refused
        self.paths += found
        if not found:
            raise SourceError(f"no file matches {given[:200]!r}", "give a path or a pattern of files")


def _reach_of(session: Session, hello: ClientHello) -> Reach:
    """What a client may have loaded.

    A client on this machine (its hello has a working directory) loads what its user can read: it could read
    the file itself. Any other client loads what the session's policy lets code read. Nobody loads what tells
    of this process or of other sessions.
    """
    ours = (rendezvous.state_folder(), rendezvous.runtime_folder(), str(rendezvous.config_dir()))
    refused = (*_SYSTEM_FOLDERS, *ours)
    if hello.cwd:
        return Reach(refused)
    files = resolve(session.policy, session.row.workspace or None, _NO_SCRATCH).files
    allowed = [root for root in (*files.read, *files.write) if root.startswith("/") and root != _NO_SCRATCH]
    return Reach(refused, allowed, f"a remote client under policy {session.row.policy!r}")


def _absolute(given: str, session: Session, hello: ClientHello) -> Path:
    if not given or "\0" in given:
        raise ToolFault("cannot_read", "the path is empty or holds a NUL character", "give a file's path")
    if len(given) > _LONGEST_PATH:
        raise ToolFault("cannot_read", f"a path of {len(given):,} characters names no file", "give a file's path")
    path = Path(os.path.expanduser(given))
    base = hello.cwd or session.row.workspace
    if not path.is_absolute() and not base:
        said = f"{given!r} is relative, and to which folder is not known"
        raise ToolFault("cannot_read", said, "give an absolute path")
    return Path(base) / path


def _permitted(given: Sequence[str], session: Session) -> str:
    """The URL that was given, if the policy permits it."""
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
    return url


def _told(loaded: Loaded) -> dict[str, Any]:
    if loaded.table:
        return {"files": {"count": loaded.files, "skipped": loaded.skipped}}
    if loaded.shape is not None:
        return {"table": loaded.shape}
    return {"compression": loaded.compression} if loaded.compression else {}
