"""Parses plans from agents and the page: a goal is a string, or an object with subgoals."""

from __future__ import annotations

from typing import Any

from rlm_mcp.service.errors import ToolFault
from rlm_memory.frames.tree import DEEPEST_PLANNED, Plan


def plan_of(given: Any, depth: int = 1) -> Plan:
    """Return the plan in a JSON value.

    Raises:
        ToolFault: it contains something other than goals, or is nested too deeply.
    """
    if depth > DEEPEST_PLANNED:
        raise _refused(f"goals are nested more than {DEEPEST_PLANNED} deep")
    if isinstance(given, str):
        return Plan(given)
    if not isinstance(given, dict) or not isinstance(given.get("goal"), str) or given.keys() - {"goal", "children"}:
        raise _refused(f"{str(given)[:80]!r} is not a goal")
    below = given.get("children", [])
    if not isinstance(below, list):
        raise _refused(f"{str(below)[:80]!r} is not a list of goals")
    return Plan(given["goal"], [plan_of(child, depth + 1) for child in below])


def _refused(why: str) -> ToolFault:
    hint = 'a goal is a string, or {"goal": text, "children": [...]}; plan deeper goals in another call'
    return ToolFault("invalid_arguments", f"plan: {why}", hint)
