"""The commands of ``rlm-kernel``, put together."""

from __future__ import annotations

import functools
import logging
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
    watching,
    work,
)
from rlm_mcp.cli.open import open_session
from rlm_mcp.cli.output import failing

app = typer.Typer(
    name="rlm-kernel",
    help="Real, sandboxed Jupyter kernels behind MCP: load a text once, share it by name between agents.",
    epilog="Exit codes: 0 success, 1 failure, 2 wrong usage, 3 no daemon, 4 the machine is not set up for it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(daemon.app, name="daemon")
app.add_typer(attachments.app, name="attachments")
app.add_typer(policy.app, name="policy")
app.add_typer(work.app, name="work")
app.add_typer(skills.app, name="skills")
work.app.command("import")(trackers.import_)
work.app.command("export")(trackers.export)
app.command("metrics")(metrics.metrics)
app.command("ask")(ask.ask)
app.command("serve")(daemon.serve)
app.command("web")(watching.web)
app.command("top")(watching.top)
app.command("sessions")(sessions.sessions)
app.command("journal")(sessions.journal)
app.command("fork")(sessions.fork)
app.command("tree")(frames.tree)
app.command("plan")(frames.plan)
app.command("push")(frames.push)
app.command("pop")(frames.pop)
app.command("frame")(frames.frame)
app.command("log")(frames.log)
app.command("save")(snapshots.save)
app.command("restore")(snapshots.restore)
app.command("export")(notebooks.export)
app.command("open", context_settings={"allow_extra_args": True})(open_session)
app.command("replay")(notebooks.replay)
app.command("load")(sessions.load)
app.command("refresh")(sessions.refresh)
app.command("query")(sessions.query)
app.command("run")(sessions.run)
app.command("answer")(sessions.answer)
app.command("doctor")(doctor.doctor)
app.command("config")(clients.config)
app.command("hook")(hooks.hook)
app.command("prime")(hooks.prime)
app.command("lock")(lock.lock)
app.command("skill")(skill.skill)


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


@app.command("mcp")
def mcp() -> None:
    """Speak MCP on standard input and output; this is what a client's configuration starts."""
    from rlm_mcp.front.__main__ import main as front

    raise typer.Exit(front())


@app.command("demo")
@failing
def demo(
    file: Annotated[
        Path | None, typer.Option("--file", exists=True, dir_okay=False, help="The text to work on.")
    ] = None,
) -> None:
    """Show rlm-kernel at work: four MCP clients work on one large text in parallel."""
    from rlm_mcp.demo.run import main as run_demo

    raise typer.Exit(run_demo(file))


@functools.cache
def program() -> typer.core.TyperGroup:
    """Return the commands as typer builds them of the functions above, which takes longer than most commands."""
    built = typer.main.get_command(app)
    assert isinstance(built, typer.core.TyperGroup)
    return built


def main() -> int:
    """Run the command line; typer ends the program with the command's exit code."""
    logging.lastResort = None  # warnings of libraries belong into logs, not at a prompt
    program()(prog_name="rlm-kernel")
    return 0
