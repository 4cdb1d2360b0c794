"""The protocol of the lock as tables, and what an answer shows of long sections."""

import json
from typing import Any

import pytest

from rlm_client.calls import LockField, LockPriority, LockRole
from rlm_lock.model import Change, FileChange
from rlm_lock.protocol import Difference
from rlm_mcp.service.lock.content import counts, difference, shortened, stamp
from rlm_mcp.service.lock.tables import KEYS, ROLES, Choice, Priority, Trouble, choose, forbidden, trouble

P0, P1, P2, P3 = Priority


def test_the_tool_takes_what_the_tables_have() -> None:
    """L-14: a role or a priority that the schema lacks could not be asked for."""
    assert LockPriority.__args__ == tuple(Priority)  # type: ignore[attr-defined]
    assert LockRole.__args__ == tuple(ROLES)  # type: ignore[attr-defined]
    assert {field for fields in ROLES.values() for field in fields} == set(LockField.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("asked", "fields", "role", "seen", "mapped", "chosen"),
    [
        (None, None, None, False, False, Choice(P0, KEYS[P0])),
        (None, None, None, True, False, Choice(P2, KEYS[P2])),
        (P0, None, None, True, False, Choice(P0, KEYS[P0])),
        (P1, None, None, True, False, Choice(P1, KEYS[P1])),
        (P3, None, None, False, False, Choice(P3, KEYS[P3])),
        (P2, ["rules"], None, True, False, Choice(P2, ("rules",))),
        (P0, ["rules", "rules", "project"], "conductor", True, True, Choice(P0, ("rules", "project"))),
        (None, None, "implementer", False, False, Choice(P3, ("rules",))),
        (None, None, "planner", False, False, Choice(P0, ("project", "rules"))),
        (None, None, "planner", True, False, Choice(P2, KEYS[P2])),
        (P0, None, "planner", True, False, Choice(P0, ("project", "rules"))),
        (None, None, None, False, True, Choice(P0, ())),
        (P0, None, None, False, True, Choice(P0, KEYS[P0])),
        (None, [], None, False, False, Choice(P0, ())),
    ],
)
def test_what_a_call_gets(
    asked: Priority | None, fields: list[str] | None, role: str | None, seen: bool, mapped: bool, chosen: Choice
) -> None:
    """L-7, L-8, L-14: priority, fields, role, and what the frame has seen; fields always win."""
    assert choose(asked, fields, role, seen=seen, mapped=mapped) == chosen


def test_each_trouble_has_a_status_and_an_action() -> None:
    """L-9: as the document of the protocol has them."""
    statuses = {which.value: trouble(which)["http_status"] for which in Trouble}
    assert statuses == {"LOCK_NOT_FOUND": 404, "LOCK_EXPIRED": 410, "LOCK_STALE": 200, "LOCK_CONFLICT": 409}
    assert all(trouble(which)["action"] for which in Trouble)


def test_a_difference_tells_of_the_project() -> None:
    """A policy that forbids the project forbids what changed in it."""
    assert forbidden(["diff", "rules"], ["rules"]) == ["diff"]
    assert forbidden(["diff", "rules"], ["project", "rules"]) == []


def test_what_is_shown_fits_and_names_what_was_cut() -> None:
    """The longest lists lose their ends first; what is short stays whole, and the section itself is not changed."""
    long: dict[str, Any] = {"directories": {"count": 500, "paths": [f"folder{number}/" for number in range(500)]}}
    rules: dict[str, Any] = {"rules": [{"id": f"R{number}", "text": "word " * 900} for number in range(3)]}
    history = {"sessions": [{"task": "a"}]}
    shown, cut = shortened({"project": long, "rules": rules, "history": history}, 4000)
    assert len(json.dumps(shown)) < 4500
    assert cut == ["project", "rules"]
    assert shown["history"] == history
    assert shown["project"]["directories"]["count"] == 500
    assert len(shown["project"]["directories"]["paths"]) <= 100
    assert [rule["id"] for rule in shown["rules"]["rules"]] == ["R0", "R1", "R2"]
    assert len(long["directories"]["paths"]) == 500
    assert rules["rules"][0]["text"] == "word " * 900


def test_what_fits_is_whole_and_what_cannot_fit_ends() -> None:
    """Nothing is cut without need, and nothing is tried for ever."""
    small: dict[str, Any] = {"project": {"files": {"count": 3}}, "map": "x" * 5000}
    assert shortened(small, 10_000) == (small, [])
    shown, cut = shortened({"map": "x" * 5000}, 100)
    assert (shown, cut) == ({"map": "x" * 5000}, [])


def test_counts_are_numbers_only() -> None:
    """L-7: a quick check has no lists."""
    files = {"count": 3, "untracked": 1, "by_extension": {".py": 3}}
    project = {"files": files, "directories": {"count": 2, "paths": []}}
    assert counts(project) == {"files": {"count": 3, "untracked": 1}, "directories": {"count": 2}}
    assert counts({"files": None}) == {}


def test_a_difference_names_definitions_only_where_there_are_any() -> None:
    """L-7: by file, and by definition where one came or went; a version that is forgotten is null."""
    changes = (
        FileChange("a.py", Change.MODIFIED, ("new",), ("old",)),
        FileChange("b.py", Change.ADDED),
        FileChange("c.py", Change.MODIFIED, is_parsed=False),
    )
    told = difference(Difference(0, 7, 3, changes))
    assert (told["before"], told["after"], told["count"]) == (None, 7, 3)
    assert told["changes"] == [
        {"path": "a.py", "change": "modified", "added": ["new"], "removed": ["old"]},
        {"path": "b.py", "change": "added"},
        {"path": "c.py", "change": "modified", "definitions": "unknown: the file was not parsed in both versions"},
    ]
    assert stamp(1_800_000_000.9) == "2027-01-15T08:00:00Z"
