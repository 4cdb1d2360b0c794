"""A policy as content: read once, kept as text with its hash, and never looked up by its path again.

A file that code of a session could rewrite must not be a policy, however its path leads there: `pin_policy` refuses it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm_sandbox.errors import PolicyLostError
from rlm_sandbox.policy.final import read_final
from rlm_sandbox.policy.model import Policy, resolve
from rlm_sandbox.policy.places import is_path, policy_directories
from rlm_sandbox.policy.trusted_paths import way_to

__all__ = ["PinnedPolicy", "digest_of", "pin_policy", "pinned", "unpin", "write_roots"]

_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_NO_SCRATCH = "/nonexistent"
"""Stands for the scratch folder of a session that has none yet."""


_known: dict[str, Policy] = {}
"""The policies that this process has read, by the SHA-256 of their content."""


@dataclass(frozen=True, slots=True)
class PinnedPolicy:
    """A policy with its content as text, the SHA-256 of that, and where it was read: a name or an absolute path."""

    policy: Policy
    origin: str
    text: str
    digest: str


def pinned(policy: Policy, origin: str) -> PinnedPolicy:
    """Fix the content of a policy that has been read."""
    text = policy.to_json()
    digest = digest_of(text)
    _known[digest] = policy
    return PinnedPolicy(policy, origin, text, digest)


def pin_policy(
    name_or_path: str,
    *,
    writable: Collection[str] = (),
    workspace: str | None = None,
    directories: Sequence[Path] | None = None,
) -> PinnedPolicy:
    """Read a policy and fix its content.

    ``writable`` are folders that sessions may write; those that this policy lets its own session write, with its
    ``workspace``, count too. The folders of policies that are found by name do not: no session may write them.

    Raises:
        UnknownPolicyError: there is no policy of that name.
        PolicyFileError: a file does not hold a policy, or a session could write it.
    """
    places = tuple(policy_directories() if directories is None else directories)
    policy, files = _read(name_or_path, places)
    closed = [os.path.realpath(place) for place in places]
    roots = [*map(os.path.realpath, writable), *write_roots(policy, workspace)]
    for file in files:
        _refuse_writable(file, roots, closed)
    origin = os.path.abspath(os.path.expanduser(name_or_path)) if is_path(name_or_path) else name_or_path
    return pinned(policy, origin)


def _read(name_or_path: str, places: Sequence[Path]) -> tuple[Policy, tuple[Path, ...]]:
    if (found := read_final(name_or_path, places)) is not None:
        return found[0], (found[1],)
    from rlm_sandbox.policy.files import read_policy  # pydantic and YAML, for which most first calls need not wait

    return read_policy(name_or_path, directories=places)


def unpin(text: str, digest: str, origin: str) -> PinnedPolicy:
    """Read a policy from the text that was kept of it; raises PolicyLostError for anything but that text."""
    if digest_of(text) != digest:
        raise PolicyLostError(origin)
    if (known := _known.get(digest)) is not None:
        return PinnedPolicy(known, origin, text, digest)
    from pydantic import ValidationError

    from rlm_sandbox.policy.validation import checked_json

    try:
        return PinnedPolicy(checked_json(text), origin, text, digest)
    except ValidationError as error:
        raise PolicyLostError(origin) from error


def write_roots(policy: Policy, workspace: str | None) -> tuple[str, ...]:
    """Return the folders and files that a session may write under a policy, besides its scratch folder."""
    roots = resolve(policy, workspace or None, _NO_SCRATCH).files.write
    return tuple(root for root in roots if not root.startswith(_NO_SCRATCH))


def digest_of(text: str) -> str:
    """Return the SHA-256 of a policy's content."""
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_writable(file: Path, roots: Collection[str], closed: Collection[str]) -> None:
    """Refuse a file if the path to it leads through a folder that a session may write.

    A process that cannot write any folder on that path cannot change where it leads, so a file that passes stays.
    """
    for place in map(Path, way_to(file)):
        if any(place.is_relative_to(folder) or Path(folder).is_relative_to(place) for folder in closed):
            continue  # a session can write neither their contents nor the folders on the path to them
        if any(place.is_relative_to(folder) for folder in _SYSTEM_FOLDERS):
            from rlm_sandbox.policy.yaml_document import unreadable

            raise unreadable(file, "is in a folder of the system; keep policies in a folder of your own")
        if root := next((root for root in roots if place.is_relative_to(root)), None):
            from rlm_sandbox.policy.yaml_document import unreadable

            better = f"put it into {policy_directories()[0]} and name it {file.stem!r}"
            raise unreadable(file, f"could be rewritten by a session, which may write {root}; {better}")
