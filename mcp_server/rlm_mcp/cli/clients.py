"""``rlm-kernel config CLIENT``: a ready configuration for each supported client.

docs/clients.md contains the same blocks and notes on each client; a test compares the two.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import rlm_mcp
from rlm_ipc import discovery
from rlm_ipc.json_lines import hooks_folder
from rlm_ipc.late_dataclasses import dataclass
from rlm_ipc.messages import JsonObject
from rlm_mcp.cli.output import JsonFlag, show
from rlm_mcp.hook.blocks import BLOCKS, Installation

NAME = "rlm-kernel"
Command = Sequence[str]
"""A program and its arguments."""
CODEX_VARIABLES = (
    "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "RLM_KERNEL_RUNTIME_DIR", "RLM_KERNEL_STATE_DIR",
    "RLM_KERNEL_CONFIG_DIR", "RLM_KERNEL_POLICY", "RLM_KERNEL_TOOLS", "PARENT_SESSION_ID",
)  # fmt: skip
"""Codex passes only the variables that its configuration names to a server, apart from HOME, PATH and the like."""


@dataclass(frozen=True)
class ClientConfig:
    """How to configure an MCP server in one client."""

    title: str
    program: str
    """The client's own program."""
    files: tuple[str, ...]
    """The files for the configuration, of which one is enough."""
    command: str
    """The client's own command with the same effect; ``{command}`` is ours."""
    render: Callable[[Command], str]
    """Returns the text for the file, given the command that starts rlm-kernel."""
    skills: str = ".agents/skills"
    """The folder in which it looks for skills, below a project or the home folder."""
    also: tuple[str, ...] = ()
    """Other files that may configure it."""

    @property
    def file(self) -> str:
        """The files, as a sentence names them."""
        return " or ".join(self.files)


def _json(**content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"


def _plain(command: Command) -> str:
    return _json(mcpServers={NAME: _order(command)})


def _order(command: Command) -> JsonObject:
    return {"command": command[0], "args": [*command[1:], "mcp"]}


def _claude_code(command: Command) -> str:
    # Without the last key the model's first request is sent without the tools, before the server has answered.
    return _json(mcpServers={NAME: {"type": "stdio", **_order(command), "alwaysLoad": True}})


def _opencode(command: Command) -> str:
    # The format of version 1, which version 2 also reads. The timeout is for one call, in milliseconds.
    server = {"type": "local", "command": [*command, "mcp"], "enabled": True, "timeout": 120_000}
    return _json(**{"$schema": "https://opencode.ai/config.json"}, mcp={NAME: server})


def _codex(command: Command) -> str:
    variables = ", ".join(json.dumps(name) for name in CODEX_VARIABLES)
    return (
        f"[mcp_servers.{NAME}]\n"
        f"command = {json.dumps(command[0])}\n"
        f"args = {json.dumps([*command[1:], 'mcp'])}\n"
        f"env_vars = [{variables}]\n"
        "required = true\n"
        "startup_timeout_sec = 30\n"
        "tool_timeout_sec = 120\n"
    )


def _copilot_cli(command: Command) -> str:
    return _json(mcpServers={NAME: {"type": "local", **_order(command), "tools": ["*"]}})


CLIENTS = {
    "claude-code": ClientConfig(
        "Claude Code",
        "claude",
        (".mcp.json",),
        f"claude mcp add --scope user {NAME} -- {{command}} mcp",
        _claude_code,
        ".claude/skills",
        ("~/.claude.json",),
    ),
    "opencode": ClientConfig(
        "OpenCode", "opencode", ("opencode.json", "~/.config/opencode/opencode.json"), "", _opencode
    ),
    "codex": ClientConfig(
        "Codex",
        "codex",
        ("~/.codex/config.toml",),
        f"codex mcp add {NAME} -- {{command}} mcp",
        _codex,
        also=(".codex/config.toml",),
    ),
    "gemini-cli": ClientConfig(
        "Gemini CLI",
        "gemini",
        (".gemini/settings.json", "~/.gemini/settings.json"),
        f"gemini mcp add --scope user {NAME} {{command}} mcp",
        _plain,
    ),
    "qwen-code": ClientConfig(
        "Qwen Code",
        "qwen",
        (".qwen/settings.json", "~/.qwen/settings.json"),
        f"qwen mcp add --scope user {NAME} {{command}} mcp",
        _plain,
        ".qwen/skills",
    ),
    "copilot-cli": ClientConfig(
        "Copilot CLI",
        "copilot",
        ("~/.copilot/mcp-config.json",),
        f"copilot mcp add {NAME} -- {{command}} mcp",
        _copilot_cli,
        also=(".mcp.json", ".github/mcp.json"),
    ),
}
"""The clients, by their names for `rlm-kernel config`."""


def _known(name: str) -> str:
    if name not in CLIENTS:
        raise typer.BadParameter(f"{name!r} is not a known client; use one of {', '.join(CLIENTS)}")
    return name


def _complete(incomplete: str) -> list[str]:
    return [name for name in CLIENTS if name.startswith(incomplete)]


def _words(command: str) -> list[str]:
    """Split a command into words as a shell would."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise typer.BadParameter(f"{command!r} cannot be parsed as a command: {error}") from error
    if not words:
        raise typer.BadParameter("the command is empty; name the program that starts rlm-kernel")
    return words


def our_command() -> str:
    """Return the command that clients start: a plain name if that finds this installation, else a path.

    A virtual environment is on the PATH of the shell that activated it, but not on that of a client.
    """
    found = shutil.which(NAME)
    beside = Path(sys.executable).with_name(NAME)
    if not beside.exists():
        return NAME
    activated = found is not None and sys.prefix != sys.base_prefix and Path(found).parent == beside.parent
    if found is None or activated or Path(found).resolve() != beside.resolve():
        return str(beside)
    return NAME


ClientOption = Annotated[
    str, typer.Option(help=f"The client: {', '.join(CLIENTS)}.", callback=_known, autocompletion=_complete)
]


def config(
    client: Annotated[
        str,
        typer.Argument(
            help=f"The client to configure: {', '.join(CLIENTS)}.", callback=_known, autocompletion=_complete
        ),
    ],
    command: Annotated[
        str | None, typer.Option(help="Command that starts rlm-kernel; default: this installation's.")
    ] = None,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="Print the client's hooks, which report the agent's actions to the daemon.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print a ready configuration for a client. Standard error says into which file to put it.

    Example: `rlm-kernel config claude-code`
    """
    known = CLIENTS[client]
    if hooks:
        _show_hooks(client, as_json)
        return
    start = _words(command) if command is not None else [our_command()]
    text = known.render(start)
    shortcut = known.command.format(command=shlex.join(start))
    data = {"client": client, "file": known.file, "content": text, "command": shortcut or None}
    show(data, as_json, lambda: _print(known, text, shortcut))


def _show_hooks(client: str, as_json: bool) -> None:
    block = BLOCKS[client]
    packages = str(Path(rlm_mcp.__file__).resolve().parents[1])
    installed = Installation(sys.executable, packages, hooks_folder(discovery.state_folder()))
    text = block.render(block.events, lambda event: installed.command(client, event), installed)
    data = {"client": client, "file": block.file, "content": text}
    show(data, as_json, lambda: _print_hooks(client, text))


def _print_hooks(client: str, text: str) -> None:
    block = BLOCKS[client]
    print(f"# {CLIENTS[client].title}: add this to {block.file}, and keep what it holds", file=sys.stderr)
    if block.trust:
        print(f"# {block.trust}", file=sys.stderr)
    print(text, end="")


def _print(client: ClientConfig, text: str, shortcut: str) -> None:
    print(f"# {client.title}: add this to {client.file}, and keep what it holds", file=sys.stderr)
    if shortcut:
        print(f"# or run: {shortcut}", file=sys.stderr)
    print(text, end="")
