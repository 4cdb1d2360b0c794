"""Additions to the help: an example for each command, and names of values instead of types."""

from __future__ import annotations

from collections.abc import Mapping

import typer
import typer.core

NAMES = ["-h", "--help"]
"""The options that show the help."""

EXAMPLES: Mapping[str, str] = {
    "demo": "demo --file app.log",
    "tour": "tour",
    "docs": "docs queries",
    "doctor": "doctor",
    "config": "config claude-code",
    "skill": "skill --install claude-code",
    "mcp": "mcp",
    "load": "load log app.log --session work",
    "run": "run \"len(log['lines'])\" --session work",
    "query": 'query log "SELECT count(*) FROM log" --session work',
    "ask": 'ask "What fails?" app.log',
    "answer": 'answer q_000 "a timeout" --session work',
    "refresh": "refresh log --session work",
    "sessions": "sessions work",
    "journal": "journal work --last 5",
    "top": "top --once",
    "web": "web",
    "open": "open work",
    "fork": "fork work trial",
    "end": "end trial",
    "save": "save work work.rlmsnap",
    "restore": "restore work.rlmsnap --session later",
    "export": "export work work.ipynb",
    "replay": "replay work.ipynb",
    "plan": 'plan "explain the outage" "read the log" "ask the operators"',
    "push": 'push "read the log"',
    "pop": 'pop f3 --summary "the disk was full"',
    "tree": "tree",
    "frame": "frame f3",
    "log": "log f3",
    "work run": 'work run --epic f2 --headless --agent-cmd "claude -p {prompt}"',
    "work next": "work next --wait",
    "work claim": "work claim f5 --pid $$",
    "work renew": "work renew f5",
    "work release": "work release f5",
    "work done": 'work done f5 --summary "fixed"',
    "work add": 'work add "fix the parser" --priority 750',
    "work list": "work list --status ready",
    "work handoff": "work handoff f5",
    "work import": "work import .beads/issues.jsonl",
    "work export": "work export --to beads --output issues.jsonl",
    "metrics": "metrics",
    "prime": "prime",
    "lock": "lock --map 1500",
    "skills list": "skills list",
    "skills show": "skills show debugging",
    "skills lint": "skills lint .rlm/skills",
    "policy list": "policy list",
    "policy show": "policy show data",
    "policy check": "policy check mine.yaml",
    "policy apply": "policy apply work strict",
    "policy schema": "policy schema",
    "attachments list": "attachments list",
    "attachments add": "attachments add work --watch",
    "attachments revoke": "attachments revoke 0b8e38bef9b5",
    "daemon start": "daemon start",
    "daemon stop": "daemon stop",
    "daemon status": "daemon status",
    "upgrade": "upgrade --check",
    "serve": "serve",
    "hook": "hook PostToolUse --client claude-code",
}
"""An example of each command, without the program's name."""


def complete_help(command: object, path: tuple[str, ...] = ()) -> None:
    """Add an example to each command below ``command``, and name each option's value where typer shows ``<str>``."""
    if isinstance(command, typer.core.TyperGroup):
        for name, below in command.commands.items():
            complete_help(below, (*path, name))
    elif isinstance(command, typer.core.TyperCommand):
        command.epilog = f"Example: `rlm-kernel {EXAMPLES[' '.join(path)]}`"
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
