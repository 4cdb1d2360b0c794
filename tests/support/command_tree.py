"""The commands of the command line, each by its words, and the examples of their help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from rlm_mcp.cli.app import program


def command_leaves(above: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command that does something below a group: ``("policy", "show")``, not ``("policy",)``."""
    if not isinstance(above, TyperGroup):
        yield path, above
        return
    context = typer.Context(above)
    for name in above.list_commands(context):
        yield from command_leaves(above.get_command(context, name), (*path, name))


def examples() -> dict[str, str]:
    """Return the example of each command, without the program's name."""
    found = {" ".join(path): str(command.epilog) for path, command in command_leaves(program())}
    return {name: re.sub(r"^Example: `rlm-kernel (.*)`$", r"\1", epilog) for name, epilog in found.items()}
