"""The tools that a client is told of, as the front has them stored."""

import json
from pathlib import Path

from rlm_mcp.front.cached_answers import FIRST_ANSWERS


def listed_tools(tier: str) -> set[str]:
    """The names of all tools of that tier."""
    answers = json.loads(Path(FIRST_ANSWERS).read_text())["answers"]
    return {tool["name"] for tool in answers[f'["{tier}", null, "tools/list"]']["tools"]}
