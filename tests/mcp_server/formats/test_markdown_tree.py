"""Markdown as the page shows it: known elements, texts, and nothing that could become markup or lead elsewhere."""

from collections.abc import Iterator
from typing import Any

import pytest

from rlm_ipc.displays import MARKDOWN
from rlm_mcp.formats.markdown_tree import DEEPEST, ELEMENTS, LONGEST, Tree, apart, tree_of


def names(tree: Tree) -> Iterator[str]:
    """The names of all elements of a tree."""
    yield tree[0]
    for child in tree[1:]:
        if isinstance(child, list):
            yield from names(child)


def depth(tree: Tree) -> int:
    return 1 + max((depth(child) for child in tree[1:] if isinstance(child, list)), default=0)


def shown(text: str) -> dict[str, Any]:
    return {MARKDOWN: text, "text/plain": text}


def test_a_report_becomes_headings_lists_tables_and_code() -> None:
    """What agents write in reports."""
    report = (
        "# Errors\n\nThe **first** `id`:\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n"
    )
    assert tree_of(report) == [
        "div",
        ["h3", "Errors"],
        ["p", "The ", ["strong", "first"], " ", ["code", "id"], ":"],
        ["ul", ["li", "one"], ["li", "two"]],
        ["table", ["thead", ["tr", ["th", "a"], ["th", "b"]]], ["tbody", ["tr", ["td", "1"], ["td", "2"]]]],
        ["pre", "x = 1"],
    ]


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", "[here](https://x.y)", "![p](x.png)", "$x^2$"])
def test_what_could_act_or_lead_elsewhere_is_its_source(text: str) -> None:
    """HTML, links, pictures; and LaTeX, for which the page has no fonts."""
    tree = tree_of(text)
    assert set(names(tree)) <= {"div", "p"}
    assert text in str(tree)


def test_hostile_nesting_stays_shallow() -> None:
    """JSON and the page are written by recursion."""
    for text in ("**" * 900 + "a" + "**" * 900, "> " * 1900, "- " * 1900, "*a **b " * 500):
        tree = tree_of(text)
        assert depth(tree) <= DEEPEST + 2
        assert set(names(tree)) <= ELEMENTS


def test_the_source_of_what_is_shown_leaves_the_output() -> None:
    """It would stand there twice; what is too long to be shown stays."""
    assert apart([shown("**x**")], "a\n**x**\nb\n") == ((tree_of("**x**"),), "a\nb")
    assert apart([shown("**x**")], "1 **x** 2") == ((tree_of("**x**"),), "1 **x** 2")
    long = "x" * (LONGEST - 2)
    trees, output = apart([shown(long), shown("**x**")], f"{long}\n**x**")
    assert (len(trees), output) == (1, "**x**")
    assert apart([{"text/html": "<b>"}], "out") == ((), "out")
