"""``rlm-kernel work run``, in short ``rlm-kernel work --epic ID``: the loop that runs agents on the queue."""

from __future__ import annotations

import os
import re
import shlex
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rlm_ipc import process_identity
from rlm_ipc.chain_requests import OpenChain, SurveyWork
from rlm_ipc.daemon_connection import ask
from rlm_ipc.messages import plain, read
from rlm_mcp.cli.output import FAILED, JsonFlag, SessionOption
from rlm_mcp.errors import WrongUsage

_KINDS = ("epic", "story")
_MOST_AGENTS = 64
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "busybox"})
_SHELL_OPTION = re.compile(r"-[a-z]*c")


class Group(TyperGroup):
    """The commands of the queue. Options without a command belong to `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `run` if the first argument is an option, unless it asks for help."""
        if args and args[0].startswith("-") and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


def run(
    epic: Annotated[str | None, typer.Option(help="Work on the tasks below this epic.")] = None,
    story: Annotated[str | None, typer.Option(help="Work on the tasks below this story.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Work on everything in the repository's queue.")] = False,
    agent_cmd: Annotated[
        str | None,
        typer.Option(
            help="The command of an agent, such as: claude -p {prompt}. Also {task}, {folder}, {prompt_file}."
        ),
    ] = None,
    parallel: Annotated[
        str, typer.Option("-n", "--parallel", help="Agents at a time: a number, or auto, which starts with 2.")
    ] = "auto",
    continued: Annotated[bool, typer.Option("--continue", help="Continue an interrupted run.")] = False,
    headless: Annotated[bool, typer.Option("--headless", help="Start agents; needs --agent-cmd.")] = False,
    test: Annotated[
        list[str] | None, typer.Option(help="A command that must succeed before a task is done; repeatable.")
    ] = None,
    worktrees: Annotated[bool, typer.Option("--worktrees", help="Give each task its own git worktree.")] = False,
    max_continuations: Annotated[
        int, typer.Option(min=0, help="At most this many agents in all may continue another's work.")
    ] = 10,
    max_retries: Annotated[
        int, typer.Option(min=0, help="At most this many attempts to fix a task whose agent or tests failed.")
    ] = 3,
    no_fix: Annotated[
        bool, typer.Option("--no-fix", help="Do not try to fix failed tasks; mark them blocked.")
    ] = False,
    notify: Annotated[
        str, typer.Option(help="A command that gets each notification as JSON on its standard input.")
    ] = "",
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Run agents on the tasks of an epic, a story or the whole queue until none is left that can be done.

    Example: `rlm-kernel work run --epic f2 --headless --agent-cmd "claude -p {prompt}"`
    """
    from rlm_mcp.loop.prompts import interactive

    scope, kind = _scope(epic, story, everything), "epic" if epic is not None else "story"
    size = _size(parallel)
    if not headless:
        if agent_cmd:
            raise WrongUsage("--agent-cmd needs --headless, because agents work without a terminal")
        _check_kind(scope, kind)
        print(interactive(scope or ""))
        return
    if not agent_cmd and not continued:
        raise WrongUsage("--headless needs --agent-cmd, such as: --agent-cmd 'claude -p {prompt}'")
    import asyncio

    from rlm_mcp.cli.loop_display import Display, work
    from rlm_mcp.loop.options import Options

    options = Options(
        agent=_agent(agent_cmd or ""),
        tests=tuple(test or ()),
        size=size,
        max_continuations=max_continuations,
        max_retries=max_retries,
        fix=not no_fix,
        worktrees=worktrees,
        notify=notify,
    )
    folder, loop = os.getcwd(), process_identity.identity(os.getpid()) or ""
    settings = plain(options) if options.agent else None
    _check_kind(scope, kind)
    opened = ask(OpenChain(session, scope, loop, settings, size or 0, continued), start=True)
    chain_options = read(Options, opened.chain.options)
    chain = asyncio.run(work(opened, session, folder, Display(chain_options.notify, as_json=as_json)))
    if chain is None or chain.outcome != "completed":
        raise typer.Exit(FAILED)


def _scope(epic: str | None, story: str | None, everything: bool) -> str | None:
    """Return the frame that limits the work, or None for the whole queue. Exactly one of the three must be given."""
    if [epic is not None, story is not None, everything].count(True) != 1:
        raise WrongUsage("choose what to work on: --epic ID, --story ID, or --all for everything in the queue")
    return story if epic is None else epic


def _size(text: str) -> int | None:
    if text == "auto":
        return None
    if not text.isdecimal() or not 0 < int(text) <= _MOST_AGENTS:
        raise WrongUsage(f"-n must be auto or a number from 1 to {_MOST_AGENTS}")
    return int(text)


def _agent(command: str) -> tuple[str, ...]:
    """Return the parts of an agent's command. Refuse one in which a shell would interpret the prompt."""
    parts = tuple(shlex.split(command))
    for option, script in pairwise(parts):
        if "{prompt}" in script and _SHELL_OPTION.fullmatch(option) and not _SHELLS.isdisjoint(map(_name, parts)):
            reason = "a shell would run the text of a task as commands"
            raise WrongUsage(f"{reason}; pass the prompt as an argument: sh -c 'agent \"$1\"' sh {{prompt}}")
    return parts


def _name(program: str) -> str:
    return os.path.basename(program)


def _check_kind(scope: str | None, kind: str) -> None:
    """Refuse a frame that does not exist, or that is not of the named kind."""
    if scope is None:
        return
    actual = {row.id: row.kind for row in ask(SurveyWork(scope), start=True).frames}.get(scope, "session")
    if actual != kind:
        instead = f"use --{actual} {scope}" if actual in _KINDS else "name a story or an epic"
        raise WrongUsage(f"{scope} is a {actual}: {instead}")
