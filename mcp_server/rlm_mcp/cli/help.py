"""Changes to the help: the example of each command stands last, and values have names instead of types."""

from __future__ import annotations

import typer
import typer.core

NAMES = ["-h", "--help"]
"""The options that show the help."""
_EXAMPLE = "Example: "
"""Begins the last paragraph of each command's docstring."""


def complete_help(command: object) -> None:
    """Show the example of each command below ``command`` last, and name values where typer shows ``<str>``."""
    if isinstance(command, typer.core.TyperGroup):
        for below in command.commands.values():
            complete_help(below)
    elif isinstance(command, typer.core.TyperCommand):
        command.help, _, example = (command.help or "").rpartition(f"\n\n{_EXAMPLE}")
        command.epilog = _EXAMPLE + example
    if isinstance(command, typer.core.TyperGroup | typer.core.TyperCommand):
        for parameter in command.get_params(typer.Context(command, help_option_names=NAMES)):
            _name_value(parameter)


def _name_value(parameter: object) -> None:
    if isinstance(parameter, typer.core.TyperArgument):
        if not parameter.type_descriptor.is_choice:
            parameter.display_type_rich = _nothing  # type: ignore[method-assign]  # there is no setting for it
    elif isinstance(parameter, typer.core.TyperOption) and parameter.metavar is None:
        if parameter.is_bool_flag:
            parameter.metavar = ""
        elif not parameter.type_descriptor.is_choice:
            parameter.metavar = (parameter.name or "value").upper()


def _nothing(ctx: object) -> None:
    """Show no type for an argument: its name and help explain it."""
