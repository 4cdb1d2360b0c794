"""The calls of the documentation as functions, as its examples abbreviate them, and the texts that they work on."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

SkillMcp = Callable[..., Awaitable[str]]

LINES = 100_000
KINDS = ("Connection timeout", "Disk full", "Out of memory", "Null pointer", "Checksum", "Broken pipe", "Denied")


def production_log(lines: int = LINES) -> list[str]:
    """A log of ordinary lines: an error on every hundredth, a fatal one on every thousandth, logins, slow queries."""
    return [_line(number) for number in range(lines)]


def _line(number: int) -> str:
    start = f"2026-01-07T10:{number // 60 % 60:02d}:{number % 60:02d}Z worker-{number % 16} "
    if number % 1000 == 3:
        return f"{start}FATAL: {KINDS[number // 1000 % 7]}: pool {number} has gone, nobody is left to take the request"
    if number % 100 == 42:
        return f"{start}ERROR: {KINDS[number // 100 % 7]}: request {number} was given up after 30 seconds"
    if number % 100 == 77:
        return f"{start}WARN slow query: {number % 9000} ms for SELECT * FROM orders WHERE id = {number}"
    if number % 100 == 90:
        return f"{start}INFO GET /login of user {number} answered {401 if number % 200 == 90 else 403}"
    return f"{start}INFO request {number} of user {number * 7 % 1000} answered 200 in {number % 250} ms"


async def load_context(skill_mcp: SkillMcp, name: str, content: str, **notes: Any) -> Any:
    """Load a text under a name."""
    given = {"name": name, "content": content, **notes}
    return json.loads(await skill_mcp(tool_name="load_context", arguments=json.dumps(given)))


async def peek(skill_mcp: SkillMcp, name: str, offset: int = 0, limit: int | None = None) -> Any:
    """Read lines."""
    given = {"name": name, "offset": offset} | ({} if limit is None else {"limit": limit})
    return json.loads(await skill_mcp(tool_name="peek", arguments=json.dumps(given)))


async def scan(skill_mcp: SkillMcp, name: str, pattern: str, **more: int) -> Any:
    """Search lines."""
    return json.loads(
        await skill_mcp(tool_name="scan", arguments=json.dumps({"name": name, "pattern": pattern, **more}))
    )


async def eval_code(skill_mcp: SkillMcp, code: str) -> Any:
    """Run code; what comes back is an answer of code that ended, whole."""
    data = json.loads(await skill_mcp(tool_name="eval_code", arguments=json.dumps({"code": code})))
    assert data.keys() >= RESULT
    assert "cut" not in data
    assert "full_output" not in data
    return data


RESULT = {
    "success",
    "stdout",
    "stderr",
    "error",
    "execution_time_seconds",
    "pending_llm_queries",
    "defined_variables",
}
"""What an answer of eval_code has."""
