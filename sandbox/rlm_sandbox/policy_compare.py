"""Comparison of two policies: what the one allows and the other does not, field by field.

A session that is forked from another may be held to the same policy or a stricter one. `loosened` names every
field in which it would be looser, so that the refusal says what to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from rlm_sandbox.policy_model import Limits, Policy
from rlm_sandbox.policy_urls import permits


def is_stricter_or_equal(inner: Policy, outer: Policy) -> bool:
    """Whether everything that ``inner`` allows is allowed by ``outer`` too; see `loosened`."""
    return not loosened(inner, outer)


def loosened(inner: Policy, outer: Policy) -> dict[str, str]:
    """The fields in which ``inner`` allows more than ``outer``, each with what it allows, in words.

    Compared: language, files, network, urls, limits, required walls, and whether a provider may be asked, which carries
    prompts out of the machine; the other fields confine nothing. Paths are compared as written, so resolve both
    policies first when one uses variables and the other does not.
    """
    return dict((*_language(inner, outer), *_files(inner, outer), *_limits(inner, outer), *_rest(inner, outer)))


def _language(inner: Policy, outer: Policy) -> Iterator[tuple[str, str]]:
    mine, theirs = inner.language, outer.language
    if theirs.wall == "off":
        return
    if mine.wall == "off":
        yield "language.wall", "off, where the other has restricted"
    unblocked = sorted(set(theirs.blocked_names) - set(mine.blocked_names))
    if unblocked:
        yield "language.blocked_names", f"does not block {_some(unblocked)}"
    more = [module for module in mine.imports if not admits(theirs.imports, module)]
    if more:
        yield "language.imports", f"admits {_some(more)}"


def _files(inner: Policy, outer: Policy) -> Iterator[tuple[str, str]]:
    mine, theirs = inner.files, outer.files
    read = [path for path in mine.read if not _covered(path, theirs.read + theirs.write)]
    if read:
        yield "files.read", f"reads {_some(read)}"
    write = [path for path in mine.write if not _covered(path, theirs.write)]
    if write:
        yield "files.write", f"writes {_some(write)}"
    if mine.metadata and not theirs.metadata:
        yield "files.metadata", "true, where the other has false"


def _limits(inner: Policy, outer: Policy) -> Iterator[tuple[str, str]]:
    for name in Limits.model_fields:
        mine, theirs = getattr(inner.limits, name), getattr(outer.limits, name)
        if mine > theirs:
            yield f"limits.{name}", f"{mine}, where the other has {theirs}"


def _rest(inner: Policy, outer: Policy) -> Iterator[tuple[str, str]]:
    if inner.network and not outer.network:
        yield "network", "true, where the other has false"
    urls = [url for url in inner.urls if not permits(outer.urls, url)]
    if urls:
        yield "urls", f"loads {_some(urls)}"
    if inner.llm.permits("provider") and not outer.llm.permits("provider"):
        yield "llm.modes", "provider, where the other does not have it"
    missing = [wall for wall in outer.walls.require if wall not in inner.walls.require]
    if missing:
        yield "walls.require", f"does not require {_some(missing)}"


def admits(imports: tuple[str, ...], module: str) -> bool:
    """Whether ``imports`` names the module, a package it is in, or everything."""
    return "*" in imports or any(module == known or module.startswith(f"{known}.") for known in imports)


def _covered(path: str, roots: tuple[str, ...]) -> bool:
    return any(PurePosixPath(path).is_relative_to(root) for root in roots)


def _some(names: Sequence[str]) -> str:
    """Three of the names at most."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
