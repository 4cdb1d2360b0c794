"""``rlm-kernel hook`` and ``rlm-kernel prime``: run the hooks of agent programs manually."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from rlm_ipc import discovery
from rlm_ipc.daemon_connection import ask
from rlm_ipc.daemon_requests import ShowPrime
from rlm_ipc.errors import DaemonUnavailable
from rlm_ipc.json_lines import hooks_folder
from rlm_mcp.cli.clients import ClientOption
from rlm_mcp.cli.output import JsonFlag, errors, say, show
from rlm_mcp.hook import program
from rlm_mcp.service.hooks.folder import HookFolder
from rlm_memory.places import tree_of


def hook(
    event: Annotated[str, typer.Argument(help="The client's name for the event, such as PostToolUse.")],
    client: ClientOption = "claude-code",
) -> None:
    """Run a client hook manually: read an event from standard input, report it, and print the answer.

    Example: `rlm-kernel hook PostToolUse --client claude-code`
    """
    folder = Path(hooks_folder(discovery.state_folder()))
    folder.mkdir(mode=0o700, exist_ok=True)
    program.main(str(folder), client, event)


def prime(as_json: JsonFlag = False) -> None:
    """Print the state of this repository's goals, for an agent that starts to work here.

    Example: `rlm-kernel prime`
    """
    here = os.getcwd()
    try:
        text = ask(ShowPrime(here)).text
    except DaemonUnavailable:
        text = HookFolder(Path(hooks_folder(discovery.state_folder()))).prime(tree_of(here, ""))
    if not text and not as_json:
        errors.print("nothing is in progress or planned here; start with: rlm-kernel plan GOAL")
    show({"text": text}, as_json, lambda: say(f"{text}\n" if text else "", sys.stdout))
