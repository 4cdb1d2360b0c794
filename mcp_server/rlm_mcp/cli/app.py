"""The commands of ``rlm-kernel``, put together."""

from __future__ import annotations

import errno
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
import typer.core
import typer.main

from rlm_ipc.version import VERSION
from rlm_mcp.cli import (
    ask,
    attachments,
    clients,
    daemon,
    doctor,
    frames,
    hooks,
    lock,
    metrics,
    notebooks,
    policy,
    sessions,
    skill,
    skills,
    snapshots,
    trackers,
    upgrade,
    watching,
    work,
)
from rlm_mcp.cli.help import NAMES, complete_help
from rlm_mcp.cli.open import open_session
from rlm_mcp.cli.output import FAILED, SETUP, Commands, interruptible

app = Commands(
    name="rlm-kernel",
    help="Real, sandboxed Jupyter kernels behind MCP: load a text once, share it by name between agents.\n\n"
    "New here? `rlm-kernel demo` shows it at work, `rlm-kernel config CLIENT` connects your agent.",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no daemon, 4 the machine is not set up for it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": NAMES},
)
work.app.command("import")(trackers.import_)
work.app.command("export")(trackers.export)


def mcp() -> None:
    """Speak MCP on standard input and output; this is what a client's configuration starts."""
    from rlm_mcp.front.__main__ import main as front

    raise typer.Exit(front())


def demo(
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="The text to work on.")
    ] = None,
) -> None:
    """Show rlm-kernel at work: four MCP clients work on one large text in parallel."""
    from rlm_mcp.demo.run import main as run_demo

    with interruptible("the demonstration was stopped, and its session has ended"):
        raise typer.Exit(run_demo(file))


def tour() -> None:
    """Follow agents through one story: plan, share a text, kill the daemon, go on, report."""
    from rlm_mcp.demo.tour import main as run_tour

    with interruptible("the tour was stopped; its folders and processes, which were its own, are gone"):
        raise typer.Exit(run_tour())


_PANELS: Mapping[str, Mapping[str, Callable[..., None] | typer.Typer]] = {
    "Begin here": {
        "demo": demo,
        "tour": tour,
        "doctor": doctor.doctor,
        "config": clients.config,
        "skill": skill.skill,
        "mcp": mcp,
    },
    "Load texts, run code, ask": {
        "load": sessions.load,
        "run": sessions.run,
        "query": sessions.query,
        "ask": ask.ask,
        "answer": sessions.answer,
        "refresh": sessions.refresh,
    },
    "See, copy and keep sessions": {
        "sessions": sessions.sessions,
        "journal": sessions.journal,
        "top": watching.top,
        "web": watching.web,
        "open": open_session,
        "fork": sessions.fork,
        "end": sessions.end,
        "save": snapshots.save,
        "restore": snapshots.restore,
        "export": notebooks.export,
        "replay": notebooks.replay,
    },
    "Plan goals, and let agents share the work": {
        "plan": frames.plan,
        "push": frames.push,
        "pop": frames.pop,
        "tree": frames.tree,
        "frame": frames.frame,
        "log": frames.log,
        "work": work.app,
        "metrics": metrics.metrics,
        "prime": hooks.prime,
        "lock": lock.lock,
        "skills": skills.app,
    },
    "Say what is allowed, and run the service": {
        "policy": policy.app,
        "attachments": attachments.app,
        "daemon": daemon.app,
        "serve": daemon.serve,
        "upgrade": upgrade.upgrade,
        "hook": hooks.hook,
    },
}
"""All commands, by what somebody wants who reads the help; it lists them in this order."""
_EXTRA_ARGUMENTS = {"open"}

for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            _settings = {"allow_extra_args": True} if _name in _EXTRA_ARGUMENTS else None
            _first = (_command.__doc__ or "").partition("\n")[0].partition(". ")[0].rstrip(".") + "."
            app.command(_name, rich_help_panel=_panel, short_help=_first, context_settings=_settings)(_command)


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
    """Return the commands as typer builds them of the functions above, which takes longer than most commands."""
    built = typer.main.get_command(app)
    assert isinstance(built, typer.core.TyperGroup)
    complete_help(built)
    return built


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Why what a command prints arrives nowhere. Files that commands write have messages of their own."""


def _is_somewhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def main() -> int:
    """Run the command line; typer ends the program with the command's exit code."""
    logging.lastResort = None  # warnings of libraries belong into logs, not at a prompt
    try:
        try:
            program()(prog_name="rlm-kernel")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if not _is_somewhere():
            print("rlm-kernel: the working directory is gone; change to one that is there", file=sys.stderr)
            return SETUP
        if error.errno not in _UNWRITABLE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter would try once more at its end
        if error.errno != errno.EPIPE:
            print(f"rlm-kernel: the output cannot be written: {error.strerror}", file=sys.stderr)
        return FAILED
    return 0
