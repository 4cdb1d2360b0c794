"""The skill that agents load is short, and names what exists."""

from pathlib import Path

import pytest
import yaml

LINES_A_SKILL_MAY_HAVE = 50


@pytest.fixture(scope="module")
def skill(root: Path) -> str:
    """Return the text of the skill."""
    return (root / "skills/context-kernel/SKILL.md").read_text()


def test_the_skill_fits_in_fifty_lines(skill: str) -> None:
    """K-27: what every agent has to read is short."""
    assert len(skill.splitlines()) <= LINES_A_SKILL_MAY_HAVE


def test_the_skill_says_when_to_use_it(skill: str) -> None:
    """K-27: a client shows name and description, and decides by them."""
    header = yaml.safe_load(skill.split("---")[1])
    assert header["name"] == "context-kernel"
    assert "Use when" in header["description"]


@pytest.mark.parametrize("advice", ["insights, not data", "before `peek", "unload"])
def test_the_skill_tells_the_habits_that_keep_prompts_small(advice: str, skill: str) -> None:
    """K-26: insights instead of data, scan before peek, unload when done."""
    assert advice in skill
