"""``rlm-kernel docs``: the documentation of the installed version, also where there is no checkout and no network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlm_mcp.cli.output import JsonFlag, console, show, table
from rlm_mcp.errors import WrongUsage
from rlm_mcp.shipped import shipped


def _pages() -> dict[str, Path]:
    """Return where each page is, by its name. A checkout has some pages above the folder of the others."""
    folder = shipped("docs")
    files = [*folder.glob("*.md"), *folder.parent.glob("*.md")]
    return {file.stem.lower(): file for file in sorted(files, key=lambda file: file.stem.lower())}


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def docs(
    page: Annotated[str | None, typer.Argument(help="The page; default: list all pages.", metavar="[PAGE]")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the pages of the documentation, or print one as Markdown.

    Example: `rlm-kernel docs queries`
    """
    pages = _pages()
    if page is None:
        titles = {name: _title(file.read_text("utf-8")) for name, file in pages.items()}
        show(titles, as_json, lambda: table("", ("page", "title"), list(titles.items())))
        return
    name = page.lower().removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        raise WrongUsage(f"there is no page {page!r}: choose one of {', '.join(pages)}")
    text = pages[name].read_text("utf-8")
    show({"page": name, "content": text}, as_json, lambda: _print(text))


def _print(text: str) -> None:
    if not console.is_terminal:
        print(text, end="")
        return
    from rich.markdown import Markdown  # takes as long to import as most commands run

    console.print(Markdown(text))
