"""The commands of the command line, each by its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup


def command_leaves(above: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command that does something below a group: ``("policy", "show")``, not ``("policy",)``."""
    if not isinstance(above, TyperGroup):
        yield path, above
        return
    context = typer.Context(above)
    for name in above.list_commands(context):
        yield from command_leaves(above.get_command(context, name), (*path, name))
