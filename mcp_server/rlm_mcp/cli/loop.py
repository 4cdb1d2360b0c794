"""``rlm-kernel work run``, in short ``rlm-kernel work --epic ID``: the loop that sets agents to a queue."""

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
    """The commands of the queue; options without a command are those of the loop."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Begin with `run` when an option comes first that is not for help."""
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
        str, typer.Option("-n", "--parallel", help="Agents at once: a number, or auto, which begins with 2.")
    ] = "auto",
    go_on: Annotated[bool, typer.Option("--continue", help="Go on with a run that was interrupted.")] = False,
    headless: Annotated[bool, typer.Option("--headless", help="Start agents; needs --agent-cmd.")] = False,
    test: Annotated[
        list[str] | None, typer.Option(help="A command that must succeed before a task is done; repeatable.")
    ] = None,
    worktrees: Annotated[bool, typer.Option("--worktrees", help="Give each task a git worktree of its own.")] = False,
    max_chains: Annotated[
        int, typer.Option(min=0, help="At most this many agents, in all, that continue the work of another.")
    ] = 10,
    max_retries: Annotated[
        int, typer.Option(min=0, help="At most this many attempts to fix a task whose agent or tests failed.")
    ] = 3,
    no_fix: Annotated[bool, typer.Option("--no-fix", help="Fix nothing: a task that fails becomes blocked.")] = False,
    notify: Annotated[str, typer.Option(help="A command that gets each notification as JSON on its input.")] = "",
    session: SessionOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Let agents work on the tasks of a scope until all are done, or nothing more can be done."""
    from rlm_mcp.loop.prompts import interactive

    scope, kind = _scope(epic, story, everything), "epic" if epic is not None else "story"
    size = _size(parallel)
    if not headless:
        if agent_cmd:
            raise WrongUsage("--agent-cmd needs --headless: agents work without a terminal")
        _check_kind(scope, kind)
        print(interactive(scope or ""))
        return
    if not agent_cmd and not go_on:
        raise WrongUsage("--headless needs --agent-cmd, such as: --agent-cmd 'claude -p {prompt}'")
    import asyncio

    from rlm_mcp.cli.loop_display import Display, work
    from rlm_mcp.loop.options import Options

    options = Options(
        agent=_agent(agent_cmd or ""),
        tests=tuple(test or ()),
        size=size,
        max_chains=max_chains,
        max_retries=max_retries,
        fix=not no_fix,
        worktrees=worktrees,
        notify=notify,
    )
    folder, loop = os.getcwd(), process_identity.identity(os.getpid()) or ""
    given = plain(options) if options.agent else None
    _check_kind(scope, kind)
    opened = ask(OpenChain(session, scope, loop, given, size or 0, go_on), start=True)
    kept = read(Options, opened.chain.options)
    chain = asyncio.run(work(opened, session, folder, Display(kept.notify, as_json=as_json)))
    if chain is None or chain.outcome != "completed":
        raise typer.Exit(FAILED)


def _scope(epic: str | None, story: str | None, everything: bool) -> str | None:
    """Return the frame below which to work, None: everywhere; one of the three has to be said."""
    if [epic is not None, story is not None, everything].count(True) != 1:
        raise WrongUsage("say what to work on: --epic ID, --story ID, or --all for everything in the queue")
    return story if epic is None else epic


def _size(said: str) -> int | None:
    if said == "auto":
        return None
    if not said.isdecimal() or not 0 < int(said) <= _MOST_AGENTS:
        raise WrongUsage(f"-n is auto or a number from 1 to {_MOST_AGENTS}")
    return int(said)


def _agent(command: str) -> tuple[str, ...]:
    """Return the parts of an agent's command, in none of which a shell would read the prompt."""
    parts = tuple(shlex.split(command))
    for option, script in pairwise(parts):
        if "{prompt}" in script and _SHELL_OPTION.fullmatch(option) and not _SHELLS.isdisjoint(map(_name, parts)):
            said = "a shell would take what a task says for commands"
            raise WrongUsage(f"{said}: pass the prompt beside the script, as in sh -c 'agent \"$1\"' sh {{prompt}}")
    return parts


def _name(program: str) -> str:
    return os.path.basename(program)


def _check_kind(scope: str | None, kind: str) -> None:
    """Refuse what is not in the tree, a story where an epic was named, and the other way round."""
    if scope is None:
        return
    found = {row.id: row.kind for row in ask(SurveyWork(scope), start=True).frames}.get(scope, "session")
    if found != kind:
        instead = f"use --{found} {scope}" if found in _KINDS else "name a story or an epic"
        raise WrongUsage(f"{scope} is a {found}: {instead}")
