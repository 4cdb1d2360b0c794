"""``IPython.display`` as code of a session imports it: what shows objects, and nothing of the kernel behind it."""

from __future__ import annotations

from typing import Any

import IPython.display as ipython

from rlm_sandbox.language_wall.modules.copies import ModuleSet

MODULE = "IPython.display"
_GIVEN = (
    "Code DisplayHandle DisplayObject HTML Image JSON Latex Math Pretty TextDisplayObject clear_output update_display"
).split()


def display(*objects: Any, display_id: str | bool | None = None, clear: bool = False) -> Any:
    """Show objects in their richest form, as in any notebook."""
    # The work of the session, not the wall's own: it runs methods of the objects.
    return ipython.display(*objects, display_id=display_id, clear=clear)


class Markdown(ipython.Markdown):
    """Text in Markdown. Where Markdown is not shown, its source is."""

    def __repr__(self) -> str:
        return str(self.data)


def plant(modules: ModuleSet) -> None:
    """Let code import ``IPython.display``."""
    if MODULE not in modules.planted:
        given = {name: getattr(ipython, name) for name in _GIVEN}
        modules.plant(MODULE, {**given, "display": display, "Markdown": Markdown})
