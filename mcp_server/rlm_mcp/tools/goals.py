"""Nested goals as agents write them: texts, and objects with goals below them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_mcp.service.errors import ToolFault
from rlm_memory.frames.tree import DEEPEST_PLANNED, Plan

__all__ = ["planned"]


def planned(goal: str, children: Sequence[Any], depth: int = 1) -> Plan:
    """Return the plan that the arguments of ``plan`` mean.

    Raises:
        ToolFault: something in it is no goal, or it is nested too deeply.
    """
    if depth > DEEPEST_PLANNED:
        raise _refused(f"goals are nested more than {DEEPEST_PLANNED} deep")
    return Plan(goal, [_child(child, depth + 1) for child in children])


def _child(given: Any, depth: int) -> Plan:
    if isinstance(given, str):
        return planned(given, [], depth)
    if not isinstance(given, dict) or not isinstance(given.get("goal"), str) or given.keys() - {"goal", "children"}:
        raise _refused(f"{str(given)[:80]!r} is no goal")
    below = given.get("children", [])
    if not isinstance(below, list):
        raise _refused(f"{str(below)[:80]!r} is no list of goals")
    return planned(given["goal"], below, depth)


def _refused(why: str) -> ToolFault:
    hint = 'a child is a text, or {"goal": text, "children": [...]}; plan deeper ones in another call'
    return ToolFault("invalid_arguments", f"plan: {why}", hint)
