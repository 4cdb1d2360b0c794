"""What a front end may be shown: pictures, tables and text, and nothing that could act there.

A front end runs the scripts of an output that its person has asked for, with all rights of that person at the Jupyter
server: it is the way out of the sandbox for code that makes `_repr_html_` return one. So HTML is made anew from a short
list of tags and attributes, and what is not known to be inert is left out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

from rlm_kernel.displays import RICH

__all__ = ["MIME_TYPES", "inert", "inert_html"]

MIME_TYPES = ("text/plain", "application/json", *RICH)
"""Markdown, LaTeX and SVG are not among them: all can hold links or HTML that front ends take as they are."""
TAGS = frozenset(
    "b big blockquote br caption center code col colgroup dd del details dfn div dl dt em figcaption figure h1 h2 h3 "
    "h4 h5 h6 hr i ins kbd li mark meter ol p pre progress q s samp small span strong sub summary sup table tbody td "
    "tfoot th thead tr tt u ul var".split()
)
VOID = frozenset(("br", "col", "hr"))
DROPPED = frozenset(("script", "style", "iframe", "object", "template", "noscript", "title", "textarea", "svg", "math"))
"""Elements whose content is no text for people."""
ATTRIBUTES = frozenset(
    ("colspan", "rowspan", "span", "align", "valign", "border", "open", "start", "value", "max", "min")
)
_ALIGN = re.compile(r"\s*text-align\s*:\s*(left|right|center)\s*;?\s*")
_PICTURE = re.compile(r"data:(image/(?:png|jpeg|gif));base64,[A-Za-z0-9+/=\s]*")
_PLAIN_VALUE = re.compile(r"[\w.%-]{0,20}")
MOST_DEPTH = 200


def inert(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the forms of an output (by MIME type) that cannot act, its HTML made so."""
    shown = {kind: data[kind] for kind in MIME_TYPES if kind in data}
    if "text/html" in shown:
        shown["text/html"] = inert_html(_text(shown["text/html"]))
    return {kind: value for kind, value in shown.items() if kind == "application/json" or _text(value)}


def inert_html(text: str) -> str:
    """Return HTML with the known tags and attributes of ``text``, made anew; other tags are left out."""
    cleaner = _Cleaner()
    cleaner.feed(text)
    cleaner.close()
    return cleaner.result()


def _text(value: Any) -> str:
    """A MIME type's text, which notebooks may hold as a list of lines; nothing if it is none."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "".join(value)
    return value if isinstance(value, str) else ""


class _Cleaner(HTMLParser):
    """Writes only what it has understood; text is escaped again."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._out: list[str] = []
        self._open: list[str] = []
        self._dropping = 0

    def result(self) -> str:
        """The whole, with every element closed."""
        return "".join([*self._out, *(f"</{tag}>" for tag in reversed(self._open))])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in DROPPED:
            self._dropping += 1
        elif self._dropping:
            return
        elif tag == "img":
            self._picture(dict(attrs))
        elif tag in TAGS and len(self._open) < MOST_DEPTH:
            self._out.append(f"<{tag}{''.join(map(_attribute, attrs))}>")
            if tag not in VOID:
                self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in DROPPED:
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in DROPPED:
            self._dropping = max(0, self._dropping - 1)
        elif tag in self._open and not self._dropping:
            while (last := self._open.pop()) != tag:
                self._out.append(f"</{last}>")
            self._out.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._dropping:
            self._out.append(html.escape(data))

    def _picture(self, attributes: dict[str, str | None]) -> None:
        source = attributes.get("src") or ""
        if _PICTURE.fullmatch(source):
            self._out.append(f'<img src="{html.escape(source)}" alt="{html.escape(attributes.get("alt") or "")}">')


def _attribute(given: tuple[str, str | None]) -> str:
    name, value = given[0], given[1] or ""
    if name in ATTRIBUTES and _PLAIN_VALUE.fullmatch(value):
        return f' {name}="{value}"'
    if name == "class" and value == "dataframe":  # as pandas and JupyterLab call a table with stripes
        return ' class="dataframe"'
    if name == "style" and (align := _ALIGN.fullmatch(value)):
        return f' style="text-align: {align[1]}"'
    return ""
