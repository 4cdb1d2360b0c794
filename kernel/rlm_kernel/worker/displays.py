"""``IPython.display`` as code of a session imports it: what shows objects, and nothing of the kernel behind it."""

from __future__ import annotations

from typing import Any

import IPython.display as ipython

from rlm_sandbox.language_wall.modules.copies import ModuleSet

MODULE = "IPython.display"
_GIVEN = (
    "Code DisplayHandle DisplayObject HTML Image JSON Pretty TextDisplayObject clear_output update_display"
).split()


def display(
    *objects: Any,
    include: Any = None,
    exclude: Any = None,
    metadata: Any = None,
    transient: Any = None,
    display_id: str | bool | None = None,
    raw: bool = False,
    clear: bool = False,
) -> Any:
    """Show objects in their richest form, as in any notebook."""
    # This is the session's work, not the wall's own: it runs methods of the objects.
    shown = {"include": include, "exclude": exclude, "metadata": metadata, "transient": transient}
    return ipython.display(*objects, display_id=display_id, raw=raw, clear=clear, **shown)


class Source:
    """An object that is shown by its source where its own form is not supported."""

    data: str

    def __repr__(self) -> str:
        return str(self.data)


class Markdown(Source, ipython.Markdown):
    """Text in Markdown."""


class Latex(Source, ipython.Latex):
    """Text in LaTeX."""


class Math(Source, ipython.Math):
    """A formula in LaTeX."""


def plant(modules: ModuleSet) -> None:
    """Let code import ``IPython.display``."""
    if MODULE not in modules.planted:
        given = {name: getattr(ipython, name) for name in _GIVEN}
        shown = {"display": display, "Markdown": Markdown, "Latex": Latex, "Math": Math}
        modules.plant(MODULE, given | shown)
