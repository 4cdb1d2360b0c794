"""Every field of the schema has a rule of comparison, and each rule finds what is looser."""

from typing import Any

import pytest

from rlm_sandbox.policy import Policy, checked, loosened, policy_fields
from rlm_sandbox.policy.compare import RULES, WAYS_OUT

FREE = {"name", "description", "extends", "tools", "limits.unsaved_seconds", "limits.unsaved_cells"}
"""Fields that allow nothing."""

LOOSE: dict[str, tuple[Any, Any]] = {
    "language.wall": ("restricted", "off"),
    "language.blocked_names": (("eval",), ()),
    "language.imports": (("os.path",), ("os",)),
    "files.read": (("/a/b",), ("/a",)),
    "files.write": (("/a/b",), ("/a",)),
    "files.metadata": (False, True),
    "files.load": ("workspace", "user"),
    "network": (False, True),
    "urls": (("https://example.org/a/",), ("https://example.org/",)),
    "walls.require": (("seccomp", "landlock"), ("seccomp",)),
    "walls.private": (True, False),
    "llm.mode": ("deferred", "provider"),
    "llm.modes": (("deferred",), ("deferred", "blocking")),
    "llm.sampling": (False, True),
    "llm.cache": (False, True),
    "llm.summaries": (False, True),
    "attachments.mode": ("watch", "execute"),
    "attachments.interrupt": ("own", "any"),
    "attachments.restart": ("attach", "fresh"),
    "attachments.trusted": (False, True),
    "lock.fields": (("project",), ("project", "rules")),
    "lock.severe_rules": (("AGENTS.md",), ()),
    "checkpoint": ("off", "lazy"),
    "reopen": (False, True),
}
"""A tight and a loose value of each field that is no number."""


def policy(field: str, value: Any) -> Policy:
    """The closed policy but for one field."""
    values: Any = value
    for part in reversed(field.split(".")):
        values = {part: values}
    return checked(values)


def numbers() -> list[str]:
    """The fields that hold a number or a size of which more is looser."""
    compared = (doc for doc in policy_fields() if doc.name not in FREE)
    return [doc.name for doc in compared if doc.type in ("size", "number", "whole number")]


def test_every_field_has_a_rule() -> None:
    """K-28: a field that nobody compares is a way to a looser session."""
    names = {doc.name for doc in policy_fields()}
    assert set(RULES) == names == {*FREE, *LOOSE, *numbers()}
    assert set(WAYS_OUT) <= names


@pytest.mark.parametrize("field", [*LOOSE, *numbers()])
def test_a_looser_value_is_found_and_named(field: str) -> None:
    """K-28: in that field alone, and not the other way round."""
    if field in LOOSE:
        tight, loose = (policy(field, value) for value in LOOSE[field])
    else:
        kind = int if next(doc for doc in policy_fields() if doc.name == field).type != "number" else float
        lowest = {"limits.open_files": 16, "limits.answer_chars": 256, "limits.context_tokens": 600}.get(field, 1)
        tight, loose = policy(field, kind(lowest)), policy(field, kind(lowest + 1))
    assert set(loosened(loose, tight)) == {field}
    assert loosened(tight, loose) == {}


def test_some_fields_can_be_compared_alone() -> None:
    """What lets data out is asked of clients, who may have more of the rest."""
    roomy = checked({"network": True, "limits": {"threads": 65}})
    assert set(loosened(roomy, Policy(), WAYS_OUT)) == {"network"}
