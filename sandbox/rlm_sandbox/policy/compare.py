"""Comparison of two policies: what one allows and the other does not, by one rule for each field of the schema.

A session that is forked from another may be held to the same policy or a stricter one. `loosened` names every field in
which it would be looser, so that the refusal says what to change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from pathlib import PurePosixPath
from typing import Any

from rlm_sandbox.policy.model import Policy
from rlm_sandbox.policy.urls import permits

__all__ = ["RULES", "WAYS_OUT", "admits", "is_stricter_or_equal", "loosened"]

Rule = Callable[[Policy, Policy], str]
"""Returns in words what the first policy allows in one field and the second does not; empty if nothing."""

WAYS_OUT = ("files.write", "network", "urls", "llm.mode", "llm.modes")
"""The fields that let a session's data leave it."""


def is_stricter_or_equal(inner: Policy, outer: Policy) -> bool:
    """Return whether everything that ``inner`` allows is also allowed by ``outer``; see `loosened`."""
    return not loosened(inner, outer)


def loosened(inner: Policy, outer: Policy, fields: Sequence[str] = ()) -> dict[str, str]:
    """Return the fields in which ``inner`` allows more than ``outer``, each with what it allows, in words.

    All fields of the schema are compared, or only ``fields``. Paths are compared as written, so resolve both policies
    first when one uses variables and the other does not.
    """
    if inner == outer:  # usually a fork's: comparing each field takes milliseconds
        return {}
    said = {name: RULES[name](inner, outer) for name in fields or RULES}
    return {name: what for name, what in said.items() if what}


def admits(imports: tuple[str, ...], module: str) -> bool:
    """Return whether ``imports`` names the module, a package it is in, or everything."""
    return "*" in imports or any(module == known or module.startswith(f"{known}.") for known in imports)


def _free(inner: Policy, outer: Policy) -> str:
    """Return nothing: the field allows nothing."""
    return ""


def _at_most(field: str, *, endless_at_zero: bool = False) -> Rule:
    """Return the rule for a number that must not be higher; for some, 0 means no limit."""

    def rule(inner: Policy, outer: Policy) -> str:
        mine, theirs = _value(inner, field), _value(outer, field)
        zero = inf if endless_at_zero else 0
        return f"{mine}, where the other has {theirs}" if (mine or zero) > (theirs or zero) else ""

    return rule


def _only_if(field: str) -> Rule:
    """Return the rule for a permission."""

    def rule(inner: Policy, outer: Policy) -> str:
        return "true, where the other has false" if _value(inner, field) and not _value(outer, field) else ""

    return rule


def _up_to(field: str, *choices: str) -> Rule:
    """Return the rule for a choice; ``choices`` begins with the strictest."""

    def rule(inner: Policy, outer: Policy) -> str:
        mine, theirs = _value(inner, field), _value(outer, field)
        return f"{mine}, where the other has {theirs}" if choices.index(mine) > choices.index(theirs) else ""

    return rule


def _language(rule: Rule) -> Rule:
    """Return the rule for a field that confines nothing where the language wall is off."""
    return lambda inner, outer: "" if outer.language.wall == "off" else rule(inner, outer)


def _blocked_names(inner: Policy, outer: Policy) -> str:
    unblocked = sorted(set(outer.language.blocked_names) - set(inner.language.blocked_names))
    return f"does not block {_some(unblocked)}" if unblocked else ""


def _imports(inner: Policy, outer: Policy) -> str:
    more = [module for module in inner.language.imports if not admits(outer.language.imports, module)]
    return f"admits {_some(more)}" if more else ""


def _read(inner: Policy, outer: Policy) -> str:
    more = [path for path in inner.files.read if not _covered(path, outer.files.read + outer.files.write)]
    return f"reads {_some(more)}" if more else ""


def _write(inner: Policy, outer: Policy) -> str:
    more = [path for path in inner.files.write if not _covered(path, outer.files.write)]
    return f"writes {_some(more)}" if more else ""


def _urls(inner: Policy, outer: Policy) -> str:
    more = [url for url in inner.urls if not permits(outer.urls, url)]
    return f"loads {_some(more)}" if more else ""


def _require(inner: Policy, outer: Policy) -> str:
    missing = [wall for wall in outer.walls.require if wall not in inner.walls.require]
    return f"does not require {_some(missing)}" if missing else ""


def _private(inner: Policy, outer: Policy) -> str:
    return "false, where the other has true" if outer.walls.private and not inner.walls.private else ""


def _mode(inner: Policy, outer: Policy) -> str:
    more = not outer.llm.permits(inner.llm.mode)
    return f"{inner.llm.mode}, where the other does not have it" if more else ""


def _modes(inner: Policy, outer: Policy) -> str:
    more = [mode for mode in inner.llm.modes if not outer.llm.permits(mode)]
    return f"{_some(more)}, where the other does not have it" if more else ""


def _lock_fields(inner: Policy, outer: Policy) -> str:
    more = [field for field in inner.lock.fields if field not in outer.lock.fields]
    return f"has {_some(more)}, which the other has not" if more else ""


def _severe_rules(inner: Policy, outer: Policy) -> str:
    fewer = [pattern for pattern in outer.lock.severe_rules if pattern not in inner.lock.severe_rules]
    return f"does not mark {_some(fewer)}, which the other does" if fewer else ""


def _each(section: str, names: str, rule: Callable[[str], Rule]) -> dict[str, Rule]:
    """Return the same kind of rule for several fields of a section."""
    return {(field := f"{section}.{name}"): rule(field) for name in names.split()}


RULES: dict[str, Rule] = {
    "name": _free,
    "description": _free,
    "extends": _free,  # its effects are in the other fields
    "language.wall": _up_to("language.wall", "restricted", "off"),
    "language.blocked_names": _language(_blocked_names),
    "language.imports": _language(_imports),
    "files.read": _read,
    "files.write": _write,
    "files.metadata": _only_if("files.metadata"),
    "files.load": _up_to("files.load", "workspace", "user"),
    "network": _only_if("network"),
    "urls": _urls,
    **_each(
        "limits",
        "cell_seconds interrupt_grace_seconds output_bytes content_bytes memory_bytes open_files file_bytes "
        "scratch_bytes threads processes rollback_cells queries query_tokens query_cost query_seconds query_depth",
        _at_most,
    ),
    "limits.refused_attempts": _at_most("limits.refused_attempts", endless_at_zero=True),
    **_each("limits", "idle_seconds rest_seconds unanswered_seconds", _at_most),
    "limits.unsaved_seconds": _free,  # how soon something is saved that is saved anyway
    "limits.unsaved_cells": _free,
    **_each("limits", "image_bytes answer_chars context_tokens", _at_most),
    "walls.require": _require,
    "walls.private": _private,
    "llm.mode": _mode,
    "llm.modes": _modes,
    "llm.schema_attempts": _at_most("llm.schema_attempts"),
    **_each("llm", "sampling cache summaries", _only_if),
    "llm.wait_seconds": _at_most("llm.wait_seconds"),
    "attachments.mode": _up_to("attachments.mode", "none", "watch", "execute"),
    "attachments.interrupt": _up_to("attachments.interrupt", "own", "any"),
    "attachments.restart": _up_to("attachments.restart", "attach", "fresh"),
    "attachments.trusted": _only_if("attachments.trusted"),
    "lock.fields": _lock_fields,
    "lock.severe_rules": _severe_rules,
    # Each of these keeps more copies of what a session holds.
    "checkpoint": _up_to("checkpoint", "off", "lazy", "strict", "durable"),
    "reopen": _only_if("reopen"),
    "tools": _free,  # which tools are listed: each can be called anyway
}
"""For each field of the schema, by its dotted name, the rule that says what is looser."""


def _value(policy: Policy, field: str) -> Any:
    value: Any = policy
    for part in field.split("."):
        value = getattr(value, part)
    return value


def _covered(path: str, roots: tuple[str, ...]) -> bool:
    return any(PurePosixPath(path).is_relative_to(root) for root in roots)


def _some(names: Sequence[str]) -> str:
    """Return up to three of the names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
