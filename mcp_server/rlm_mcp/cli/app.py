"""The command-line program ``rlm-kernel``: its commands, in groups."""

from __future__ import annotations

import errno
import functools
import importlib
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from rlm_ipc.version import VERSION
from rlm_mcp.cli.help import NAMES, complete_help
from rlm_mcp.cli.output import FAILED, SETUP, Commands, interruptible


def mcp() -> None:
    """Speak MCP on standard input and output; this is what a client's configuration starts.

    Example: `rlm-kernel mcp`
    """
    from rlm_mcp.front.__main__ import main as front

    front()


def demo(
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="The text to work on.")
    ] = None,
) -> None:
    """Show rlm-kernel at work: four MCP clients work on one large text in parallel.

    Example: `rlm-kernel demo --file app.log`
    """
    from rlm_mcp.demo.run import main as run_demo

    with interruptible("the demonstration was stopped, and its session has ended"):
        raise typer.Exit(run_demo(file))


def tour() -> None:
    """Watch agents work through one scenario: plan, share a text, survive a killed daemon, report.

    Example: `rlm-kernel tour`
    """
    from rlm_mcp.demo.tour import main as run_tour

    with interruptible("the tour was stopped; its folders and processes, which were its own, are gone"):
        raise typer.Exit(run_tour())


_PANELS: Mapping[str, Mapping[str, str]] = {
    "Start here": {
        "demo": "app.demo",
        "tour": "app.tour",
        "docs": "docs.docs",
        "doctor": "doctor.doctor",
        "config": "clients.config",
        "skill": "skill.skill",
        "mcp": "app.mcp",
    },
    "Load texts, run code, ask": {
        "load": "sessions.load",
        "run": "sessions.run",
        "query": "sessions.query",
        "ask": "ask.ask",
        "answer": "sessions.answer",
        "refresh": "sessions.refresh",
    },
    "Inspect, copy and save sessions": {
        "sessions": "sessions.sessions",
        "journal": "sessions.journal",
        "top": "watching.top",
        "web": "watching.web",
        "open": "open.open_session",
        "fork": "sessions.fork",
        "end": "sessions.end",
        "save": "snapshots.save",
        "restore": "snapshots.restore",
        "export": "notebooks.export",
        "replay": "notebooks.replay",
    },
    "Plan goals, and let agents share the work": {
        "plan": "frames.plan",
        "push": "frames.push",
        "pop": "frames.pop",
        "tree": "frames.tree",
        "frame": "frames.frame",
        "log": "frames.log",
        "work": "work.app",
        "metrics": "metrics.metrics",
        "prime": "hooks.prime",
        "lock": "lock.lock",
        "skills": "skills.app",
    },
    "Set policies, and run the service": {
        "policy": "policy.app",
        "attachments": "attachments.app",
        "daemon": "daemon.app",
        "serve": "daemon.serve",
        "upgrade": "upgrade.upgrade",
        "hook": "hooks.hook",
    },
}
"""Where each command is in `rlm_mcp.cli`, grouped by purpose. The help keeps this order."""
_PANEL_OF = {name: panel for panel, commands in _PANELS.items() for name in commands}
_EXTRA_ARGUMENTS = {"open"}


class Program(typer.core.TyperGroup):
    """The commands. Each is imported and built when it is called: to build all takes longer than most of them run."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the help."""
        return list(_PANEL_OF)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name; if there is none, build all, so that typer can suggest a similar one."""
        for name in [cmd_name] if cmd_name in _PANEL_OF else _PANEL_OF:
            if name not in self.commands:
                self.commands[name] = _built(name)
        return super().get_command(ctx, cmd_name)


def _built(name: str) -> Any:
    panel = _PANEL_OF[name]
    module, _, attribute = _PANELS[panel][name].partition(".")
    command = getattr(importlib.import_module(f"rlm_mcp.cli.{module}"), attribute)
    group = Commands(pretty_exceptions_enable=False)
    if isinstance(command, typer.Typer):
        group.add_typer(command, name=name, rich_help_panel=panel)
    else:
        settings = {"allow_extra_args": True} if name in _EXTRA_ARGUMENTS else None
        first = (command.__doc__ or "").partition("\n")[0].partition(". ")[0].rstrip(".") + "."
        group.command(name, rich_help_panel=panel, short_help=first, context_settings=settings)(command)
    built = typer.main.get_group(group).commands[name]
    complete_help(built)
    return built


app = Commands(
    name="rlm-kernel",
    cls=Program,
    help="Real, sandboxed Jupyter kernels behind MCP: load a text once, share it by name between agents.\n\n"
    "New here? `rlm-kernel demo` shows it at work; `rlm-kernel config CLIENT` connects your agent.",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no daemon, 4 the machine is not set up for it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": NAMES},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(VERSION)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Handle the options that come before a command."""


@functools.cache
def program() -> typer.core.TyperGroup:
    """Return the program that typer builds from the commands."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    complete_help(group)
    return group


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Errors of writing to standard output. Files that commands write have their own messages."""


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def main() -> int:
    """Run the command line; typer ends the program with the command's exit code."""
    logging.lastResort = None  # warnings of libraries belong in logs, not at a prompt
    try:
        try:
            program()(prog_name="rlm-kernel")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not _has_working_directory():
            print("rlm-kernel: the working directory does not exist any more; change to one that does", file=sys.stderr)
            return SETUP
        if error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter would try again when it exits
        if error.errno != errno.EPIPE:
            print(f"rlm-kernel: cannot write the output: {error.strerror}", file=sys.stderr)
        return FAILED
    return 0
