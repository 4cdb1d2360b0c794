"""An agent can call only the tools that its client lists: what it is told names no other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from listed_tools import listed_tools

ROOT = Path(__file__).parents[2]

ANSWERED_BY_ITS_OWN = {
    ("forks.py", "end_session"),
    ("control.py", "restart_session"),
    ("rollback.py", "restart_session"),
}
"""Texts that only somebody reads who has called a tool of the same list, and the tool that they name."""


def _sentences(path: Path) -> Iterator[str]:
    """The texts of a module that have several words and are no docstrings."""
    tree = ast.parse(path.read_text())
    described = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described:
            yield from [node.value] if " " in node.value else []


def test_answers_name_only_tools_that_every_client_lists(source_files: list[Path]) -> None:
    """Of the tools with a name of two words, which no sentence has by chance."""
    hidden = {name for name in listed_tools("all") - listed_tools("core") if "_" in name}
    named = {
        (path.name, tool)
        for path in source_files
        if {"service", "kernel", "contexts"} & set(path.relative_to(ROOT).parts)
        for text in _sentences(path)
        for tool in hidden
        if re.search(rf"\b{tool}\b", text)
    }
    assert hidden > {"fork_session", "view_images"}
    assert named == ANSWERED_BY_ITS_OWN
