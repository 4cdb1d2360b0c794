"""Markdown that cells show, as the page shows it: a tree of known elements and texts, none of which is markup.

The page makes elements of the names in `ELEMENTS` and text of everything else, so that nothing of a session becomes
markup in it. Of links, pictures and LaTeX it shows the source: it leads nowhere that a session names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rlm_ipc.displays import MARKDOWN

if TYPE_CHECKING:
    from markdown_it.token import Token

Tree = list[Any]
"""The name of an element, and its children: texts and trees."""
ELEMENTS: Final = frozenset(
    "div p h3 h4 h5 ul ol li blockquote pre code em strong hr br table thead tbody tr th td".split()
)
LONGEST: Final = 4000
"""Characters of the Markdown of one cell that is shown so: the worst text took 60 ms. Of more, the source is shown."""
DEEPEST: Final = 30
_LINKS: Final = ["link", "image", "autolink", "reference"]
_HEADINGS: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h5", "h5": "h5", "h6": "h5"}
"""The page has headings of its own above."""


def apart(displays: Iterable[Mapping[str, Any]], output: str) -> tuple[tuple[Tree, ...], str]:
    """Return the Markdown that a cell showed as trees, and what it wrote without the source of that."""
    trees, left = [], LONGEST
    for forms in displays:
        source = forms.get(MARKDOWN)
        if not isinstance(source, str) or len(source) > left:
            continue
        left -= len(source)
        trees.append(tree_of(source))
        plain = forms.get("text/plain")
        if isinstance(plain, str) and plain:
            output = _without(output, plain)
    return tuple(trees), output


def _without(output: str, text: str) -> str:
    """``output`` without whole lines that are a text; with all of it if it has no such lines."""
    lines = f"\n{output}\n"
    before, found, after = lines.partition(f"\n{text}\n")
    return f"{before}\n{after}".strip("\n") if found else output


def tree_of(source: str) -> Tree:
    """Return Markdown as a tree; HTML in it is text."""
    from markdown_it import MarkdownIt  # few cells show Markdown, and the daemon starts without it

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(_LINKS)
    top: Tree = ["div"]
    _grow(top, parser.parse(source))
    return top


def _grow(top: Tree, tokens: Sequence[Token]) -> None:
    """Put what the tokens stand for below ``top``; what lies too deep joins the element above it."""
    path = [top]
    for token in tokens:
        if token.nesting > 0:
            path.append(_below(path, token.tag) if not token.hidden else path[-1])
        elif token.nesting < 0:
            path.pop()
        elif token.type == "inline":
            _grow(path[-1], token.children or ())
        else:
            _leaf(path[-1], token)


def _below(path: list[Tree], tag: str) -> Tree:
    name = _HEADINGS.get(tag, tag)
    if name not in ELEMENTS or len(path) > DEEPEST:
        return path[-1]
    path[-1].append(made := [name])
    return made


def _leaf(parent: Tree, token: Token) -> None:
    match token.type:
        case "fence" | "code_block":
            parent.append(["pre", token.content.removesuffix("\n")])
        case "code_inline":
            parent.append(["code", token.content])
        case "hr" | "hardbreak":
            parent.append([token.tag])
        case "softbreak":
            parent.append(" ")
        case _:
            parent.extend(filter(None, [token.content]))
