"""Decides which client may load what. Only this module creates the sources that can be ingested.

`Ingestion` takes a `Permitted`, and nothing but `Authority` constructs one. So a load that skips the decision is a
type error, and not a hole. A test checks that no other module constructs one.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Protocol, assert_never

from rlm_contexts.loading.places import PathReach
from rlm_contexts.loading.selection import AskedPath
from rlm_ipc import discovery
from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.client_info import ClientInfo
from rlm_mcp.service.contexts.sources import Files, Inline, Source, Url, Variable
from rlm_mcp.service.errors import ToolFault
from rlm_memory.contexts import StoredContent
from rlm_memory.sessions import SessionRow
from rlm_sandbox.policy import Policy
from rlm_sandbox.policy import resolve as resolve_policy
from rlm_sandbox.policy.urls import permits

_LONGEST_PATH = 4095
"""Characters of a path that Linux takes."""
_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_NO_SCRATCH = "/nonexistent"
"""Replaces the scratch folder, which a remote client must not see."""
_NO_URLS = "it permits no URL: choose (RLM_KERNEL_POLICY) or write a policy whose field `urls` has a prefix of the URL"


@dataclass(frozen=True, slots=True)
class PermittedText:
    """Text that came with the call; its sender may load it."""

    text: str


@dataclass(frozen=True, slots=True)
class PermittedFiles:
    """Absolute paths and patterns, and what may be opened on the way to them.

    A path is checked when it is open, never by its name, because someone may replace it by a link in the meantime.
    So the permission is the ``reach`` through which every file is opened.
    """

    asked: tuple[AskedPath, ...]
    reach: PathReach


@dataclass(frozen=True, slots=True)
class PermittedUrl:
    """A URL, and the prefixes that also apply to redirects."""

    url: str
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PermittedStored:
    """A text that the session already has, by a name or a handle."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class PermittedVariable:
    """A variable of the session's code."""

    name: str


Permitted = PermittedText | PermittedFiles | PermittedUrl | PermittedStored | PermittedVariable


class StoredTexts(Protocol):
    """The loaded texts of one session, as far as they decide what a name stands for."""

    def find(self, name: str) -> StoredContent | None:
        """Return the text behind a name or handle; raises UnknownHandle if the session may not resolve it."""


class KernelNames(Protocol):
    """The kernel of one session, as far as it decides what a name stands for."""

    async def shadowed(self) -> Collection[str]:
        """Return the names of loaded texts that code has given to variables of its own."""


@dataclass(frozen=True, slots=True)
class Authority:
    """The rules for one client in one session.

    A client on this machine (its handshake has a working directory) loads what its user can read: it could read the
    file itself. Under ``files.load: workspace`` it loads what is in the session's workspace, and what the policy lets
    code read. Any other client loads only the latter. Nobody loads what tells of this process or of other sessions. A
    URL has to lie under a prefix that the policy names.
    """

    client: ClientInfo
    session: SessionRow
    policy: Policy
    texts: StoredTexts
    kernel: KernelNames

    async def permit(self, source: Source) -> Permitted:
        """Return what may be ingested.

        Raises:
            ToolFault: the source is no path, or the policy does not permit the URL.
            UnknownHandle: the name is a handle that the session may not resolve.
        """
        match source:
            case Inline(text):
                return PermittedText(text)
            case Files(given):
                return PermittedFiles(tuple(AskedPath(one, self._absolute(one)) for one in given), self._reach())
            case Url(url):
                self._refuse_url(url)
                return PermittedUrl(url, tuple(self.policy.urls))
            case Variable(name):
                stored = self.texts.find(name)
                if stored is None or name in await self.kernel.shadowed():
                    return PermittedVariable(name)
                return PermittedStored(name, stored.digest)
            case never:
                assert_never(never)

    def _reach(self) -> PathReach:
        ours = (discovery.state_folder(), discovery.runtime_folder(), str(discovery.config_dir()))
        refused = (*_SYSTEM_FOLDERS, *ours)
        if self.client.cwd and (self.policy.files.load == "user" or self.client.is_terminal):
            return PathReach(refused)
        allowed = readable_places(self.policy, self.session.workspace)
        if not self.client.cwd:
            return PathReach(refused, allowed, f"a remote client under policy {self.session.policy!r}")
        workspace = [os.path.realpath(self.session.workspace)] if self.session.workspace else []
        return PathReach(refused, [*allowed, *workspace], f"policy {self.session.policy!r} (`files.load: workspace`)")

    def _absolute(self, given: str) -> Path:
        if not given or "\0" in given:
            raise ToolFault("cannot_read", "the path is empty or holds a NUL character", "give a file's path")
        if len(given) > _LONGEST_PATH:
            raise ToolFault(
                "cannot_read", f"a path of {len(given):,} characters is too long for a file", "give a file's path"
            )
        path = Path(os.path.expanduser(given))
        base = self.client.cwd or self.session.workspace
        if not path.is_absolute() and not base:
            said = f"{given!r} is relative, and the client did not name its folder"
            raise ToolFault("cannot_read", said, "give an absolute path")
        return Path(base) / path

    def _refuse_url(self, url: str) -> None:
        prefixes = self.policy.urls
        if permits(prefixes, url):
            return
        said = f"policy {self.session.policy!r} does not permit the URL {url[:200]!r}"
        hint = f"load a file below one of: {', '.join(prefixes)}" if prefixes else _NO_URLS
        raise ToolFault("cannot_read", said, hint)


def readable_places(policy: Policy, workspace: str) -> list[str]:
    """List the places that a remote client may read: those that the policy lets code read."""
    files = resolve_policy(policy, workspace or None, _NO_SCRATCH).files
    return [root for root in (*files.read, *files.write) if root.startswith("/") and root != _NO_SCRATCH]
