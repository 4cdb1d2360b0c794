"""What a front end may show: pictures, tables and text, and nothing that could act there.

A front end runs the scripts of an output that its user requested, with all rights of that user at the Jupyter server.
Code whose `_repr_html_` returns a script could escape the sandbox that way. So nh3 parses HTML as browsers do and
rewrites it from a short list of tags and attributes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

import nh3

from rlm_ipc.displays import MARKDOWN, MOST_KEPT_CHARS, RICH

MIME_TYPES = ("text/plain", "application/json", *RICH)
"""LaTeX and SVG are missing: both can hold links that front ends take as they are. Markdown becomes HTML."""
LONGEST_MARKDOWN = 32 << 10
"""Characters of Markdown that become HTML: the worst text took 2.2 s. Longer Markdown is shown as plain text."""
TAGS = frozenset(
    "b big blockquote br caption center code col colgroup dd del details dfn div dl dt em figcaption figure h1 h2 h3 "
    "h4 h5 h6 hr i img ins kbd li mark meter ol p pre progress q s samp small span strong sub summary sup table tbody "
    "td tfoot th thead tr tt u ul var".split()
)
DROPPED = frozenset(("script", "style", "iframe", "object", "template", "noscript", "title", "textarea", "svg", "math"))
"""Elements whose content is not text for people."""
ATTRIBUTES = frozenset(
    ("colspan", "rowspan", "span", "align", "valign", "border", "open", "start", "value", "max", "min")
)
_OF_ONE = re.compile(r"#([A-Za-z][\w-]*)")
_ID = re.compile(r'\bid="([A-Za-z][\w-]*)"')
STYLES = frozenset(
    "color background-color background text-align font-weight font-style text-decoration border border-top "
    "border-bottom border-left border-right padding white-space".split()
)
"""Properties that colour and align a cell of a table; none moves it elsewhere on the page."""
LONGEST_VALUE, LONGEST_STYLE = 200, 600
"""Characters of the value of such a property, and of all properties of one element."""
_VALUE = re.compile(r"(?:[\w#%.,\s+-]|\b(?:rgba?|hsla?|linear-gradient)\(|\))*")
_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif);base64,[A-Za-z0-9+/=\s]*")
_PLAIN_VALUE = re.compile(r"[\w.%-]{0,20}")

# nh3 has no limits of its own. Its time grows with the square of the depth and of a tag's attributes, and an open <b>
# is created again in every following <p>: three of a kind, or any number with different attributes. Counting the places
# where a tag could begin needs no parser of our own, so no hostile text can mislead it. Within these bounds the worst
# text took 1.2 s and 150 MB.
MOST_TAGS = 20_000
MOST_FORMATTED = 50
_TAG = re.compile(r"</?[a-z]", re.IGNORECASE)
_FORMATTED = re.compile(r"<(?:b|big|code|em|font|i|s|small|strike|strong|tt|u)[\s/]", re.IGNORECASE)


def sanitized(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the forms of an output (by MIME type) that cannot act, with sanitized HTML."""
    shown = {kind: data[kind] for kind in MIME_TYPES if kind in data}
    if MARKDOWN in data and "text/html" not in shown and len(text := _text(data[MARKDOWN])) <= LONGEST_MARKDOWN:
        shown["text/html"] = _rendered(text)
    if "text/html" in shown:
        shown["text/html"] = sanitized_html(_text(shown["text/html"]))
    return {kind: value for kind, value in shown.items() if kind == "application/json" or _text(value)}


def _rendered(markdown: str) -> str:
    """Return Markdown as HTML, in which HTML inside the text is plain text."""
    from markdown_it import MarkdownIt  # few outputs are Markdown, and a front end waits while this module loads

    return str(MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown))


def sanitized_html(text: str) -> str:
    """Return HTML with the allowed tags and attributes of ``text``.

    It is empty for more than 512 Ki characters, 20,000 tags, or 50 tags like ``<b class="x">`` that style text by
    attributes: a front end then shows the plain text of the output.
    """
    if len(text) > MOST_KEPT_CHARS or _more(_TAG, text, MOST_TAGS) or _more(_FORMATTED, text, MOST_FORMATTED):
        return ""
    return nh3.clean(
        _inlined(text),
        tags=set(TAGS),
        clean_content_tags=set(DROPPED),
        attributes={"*": {*ATTRIBUTES, "class", "style"}, "img": {"src", "alt"}},
        attribute_filter=_attribute,
        url_schemes={"data"},
        link_rel=None,
    )


def _inlined(text: str) -> str:
    """Return HTML with rules for single elements in their ``style`` attributes, as pandas styles the cells of a table.

    The result is as hostile as the text was: it is sanitized next.
    """
    wanted: dict[str, str] = {}
    for selector, declarations in itertools.islice(_rules(text), MOST_TAGS):
        if (one := _OF_ONE.fullmatch(selector.strip())) is not None:
            wanted[one[1]] = f"{wanted[one[1]]}; {declarations}" if one[1] in wanted else declarations
            if len(wanted[one[1]]) > LONGEST_STYLE:
                return text
    styled = _ID.sub(lambda found: f'style="{wanted.get(found[1], "")}"', text) if wanted else text
    return styled if len(styled) <= 2 * MOST_KEPT_CHARS else text


def _rules(text: str) -> Iterator[tuple[str, str]]:
    """Yield the style sheets' selectors with their declarations; in one pass, as hostile texts repeat themselves."""
    begin = text.find("<style")
    while begin >= 0 and (end := text.find("</style>", begin)) >= 0:
        for rule in text[text.find(">", begin, end) + 1 : end].split("}"):
            selectors, _, declarations = rule.partition("{")
            if kept := _styled(declarations):
                yield from ((selector, kept) for selector in selectors.split(","))
        begin = text.find("<style", end)


def _styled(value: str) -> str | None:
    """Return the allowed declarations whose values only colour, draw lines and align."""
    kept = []
    for declaration in value[: 10 * LONGEST_STYLE].split(";"):
        name, _, said = (part.strip().lower() for part in declaration.partition(":"))
        if name in STYLES and said and len(said) <= LONGEST_VALUE and _VALUE.fullmatch(said):
            kept.append(f"{name}: {said}")
    return "; ".join(kept) or None


def _more(pattern: re.Pattern[str], text: str, most: int) -> bool:
    return len(pattern.findall(text)) > most


def _text(value: Any) -> str:
    """Return the text of a MIME type, which notebooks may hold as a list of lines; empty if it is not text."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else ""


def _attribute(tag: str, name: str, value: str) -> str | None:
    """Return the allowed value of an attribute, or nothing."""
    if tag == "img" and name in {"src", "alt"}:
        return value if name == "alt" or _PICTURE.fullmatch(value) else None
    if name == "style":
        return _styled(value)
    if name == "class":  # the name that pandas and JupyterLab use for a table with stripes
        return value if value == "dataframe" else None
    return value if _PLAIN_VALUE.fullmatch(value) else None
