"""The configuration of every client: what is printed is well-formed, and what the manual shows."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import cli

from rlm_ipc.json_lines import HANDSHAKE_ENVIRONMENT, MADE_BY
from rlm_mcp.cli.clients import CLIENTS, CODEX_VARIABLES
from rlm_mcp.hook.blocks import BLOCKS

MANUAL = Path(__file__).parents[3] / "docs" / "clients.md"


def _server(name: str, text: str) -> dict[str, Any]:
    """Return what a configuration says about our server."""
    content = tomllib.loads(text) if name == "codex" else json.loads(text)
    servers = content.get("mcpServers") or content.get("mcp") or content.get("mcp_servers")
    found: dict[str, Any] = servers["rlm-kernel"]
    return found


@pytest.mark.parametrize("name", CLIENTS)
def test_the_manual_shows_what_is_printed(name: str) -> None:
    """docs/clients.md has for each client one block, the one that `rlm-kernel config` prints."""
    section = MANUAL.read_text().split(f"\n## {CLIENTS[name].title}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```(?:json|toml)\n(.*?)```", section, re.DOTALL)
    assert block == CLIENTS[name].render(["rlm-kernel"])


@pytest.mark.parametrize("name", CLIENTS)
def test_a_configuration_starts_the_front(name: str) -> None:
    """Each names the command and its one argument, in the client's own form."""
    server = _server(name, CLIENTS[name].render(["/opt/my tools/rlm-kernel"]))
    command = server["command"] if isinstance(server["command"], list) else [server["command"], *server["args"]]
    assert command == ["/opt/my tools/rlm-kernel", "mcp"]


@pytest.mark.parametrize("name", CLIENTS)
def test_only_the_configuration_is_on_standard_output(name: str) -> None:
    """Programs can read it; where it belongs is said beside it."""
    done = cli("config", name, "--command", "rlm-kernel")
    assert done.stdout == CLIENTS[name].render(["rlm-kernel"])
    assert CLIENTS[name].file in done.stderr


@pytest.mark.parametrize("name", CLIENTS)
def test_a_command_with_arguments_is_parted(name: str) -> None:
    """`--command "uvx rlm"` is a program and its argument, not a program with a space in its name."""
    done = cli("config", name, "--command", "uvx 'my rlm'")
    assert done.stdout == CLIENTS[name].render(["uvx", "my rlm"])
    server = _server(name, done.stdout)
    command = server["command"] if isinstance(server["command"], list) else [server["command"], *server["args"]]
    assert command == ["uvx", "my rlm", "mcp"]


def test_the_command_is_found_by_clients_too(tmp_path: Path) -> None:
    """An activated environment is on this shell's PATH alone: there it is the path; the name where a tool is linked."""
    program = Path(sys.executable).with_name("rlm-kernel")
    (tmp_path / "rlm-kernel").symlink_to(program)
    for folder, expected in ((program.parent, str(program)), (tmp_path, "rlm-kernel"), ("/usr/bin", str(program))):
        environment = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin"}
        done = subprocess.run([program, "config", "qwen-code"], capture_output=True, env=environment, check=True)
        assert _server("qwen-code", done.stdout.decode())["command"] == expected


def test_codex_is_told_every_variable_that_we_read() -> None:
    """Codex hands a server nothing else: a missing name would put it into another session or folder."""
    given = _server("codex", CLIENTS["codex"].render(["rlm-kernel"]))["env_vars"]
    folders = {f"RLM_KERNEL_{name}_DIR" for name in ("RUNTIME", "STATE", "CONFIG")}
    assert set(given) == set(CODEX_VARIABLES)
    others = {"OPENCODE_SESSION_ID", MADE_BY}  # another client's, and what a command sets for its own calls
    assert (set(HANDSHAKE_ENVIRONMENT) - others) | folders <= set(given)


def test_an_unknown_client_is_answered_with_the_known_ones() -> None:
    """Wrong usage: exit code 2, and the names."""
    assert "claude-code" in cli("config", "emacs", code=2).stderr


@pytest.mark.parametrize("name", CLIENTS)
def test_the_hooks_of_every_client_are_printed_alone(name: str) -> None:
    """E-5: `rlm-kernel config CLIENT --hooks > file` makes a usable file, for this installation and this user."""
    done = cli("config", name, "--hooks")
    folder = os.environ["RLM_KERNEL_STATE_DIR"] + "/hooks"
    assert BLOCKS[name].file in done.stderr
    if name == "opencode":
        assert f'const FOLDER = "{folder}"' in done.stdout
        return
    commands = [json.loads(found) for found in re.findall(r'"(?:command|bash)": ("\[ .*")', done.stdout)]
    assert len(commands) == len(BLOCKS[name].events) == len(json.loads(done.stdout)["hooks"])
    for command in commands:
        assert folder in command
        assert command.endswith("; exit 0")


@pytest.mark.parametrize("name", CLIENTS)
def test_the_manual_says_where_hooks_go(name: str) -> None:
    """docs/hooks.md has a line for each client, with the file that the command names."""
    page = MANUAL.with_name("hooks.md").read_text()
    (row,) = re.findall(rf"^\| `{name}` \| (.*?) \|", page, re.MULTILINE)
    assert row.replace("`", "") == BLOCKS[name].file
