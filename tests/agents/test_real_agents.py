"""Real agent programs through the loop, with a scripted model in place of a real one.

`make test-agents` installs them with npm into a folder of its own, and runs this. It is not part of `make test`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm_client.client import Client

BIN = Path(os.environ.get("RLM_AGENT_PROGRAMS", ""))
PROGRAM = Path(sys.executable).with_name("rlm-kernel")

FRAMES = int(os.environ.get("RLM_AGENT_FRAMES", "5"))
STORY = 11
"""A story and its tasks."""

pytestmark = [
    pytest.mark.skipif(not os.environ.get("RLM_AGENT_PROGRAMS"), reason="make test-agents installs the programs"),
    pytest.mark.usefixtures("ended"),
    pytest.mark.timeout(300 + 60 * FRAMES),
]


def claude(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Configure Claude Code with our MCP server and our hooks; returns its command."""
    given = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "IS_SANDBOX": "1",
        "DISABLE_AUTOUPDATER": "1",
        "ENABLE_TOOL_SEARCH": "false",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    (home / ".claude.json").write_text(json.dumps({"hasCompletedOnboarding": True}))
    hooks = subprocess.run([PROGRAM, "config", "claude-code", "--hooks"], capture_output=True, text=True, check=True)
    (home / "settings.json").write_text(hooks.stdout)
    server = {"mcpServers": {"rlm-kernel": {"command": str(PROGRAM), "args": ["mcp"]}}}
    (home / "mcp.json").write_text(json.dumps(server))
    options = "--permission-mode bypassPermissions --model sonnet --verbose --output-format stream-json"
    return f"{BIN / 'claude'} -p {{prompt}} {options} --settings {home}/settings.json --mcp-config {home}/mcp.json"


def opencode(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Configure opencode with our MCP server and our plugin; returns its command."""
    models = {"scripted": {"name": "scripted", "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": "x"},
        "models": models,
    }
    settings: dict[str, Any] = {
        "mcp": {"rlm-kernel": {"type": "local", "command": [str(PROGRAM), "mcp"], "enabled": True}},
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "share": "disabled",
        "autoupdate": False,
        "permission": {"*": "allow", "edit": "allow", "bash": "allow", "external_directory": "allow"},
        "provider": {"scripted": provider},
    }
    (home / "opencode.json").write_text(json.dumps(settings))
    plugin = subprocess.run([PROGRAM, "config", "opencode", "--hooks"], capture_output=True, text=True, check=True)
    folder = home / "xdg_config_home/opencode/plugins"
    folder.mkdir(parents=True)
    (folder / "rlm-kernel.js").write_text(plugin.stdout)
    monkeypatch.setenv("OPENCODE_CONFIG", str(home / "opencode.json"))
    for name in ("MODELS_FETCH", "AUTOUPDATE", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"):
        monkeypatch.setenv(f"OPENCODE_DISABLE_{name}", "1")
    # At the first start of all it makes its database, and of two that begin at once one may fail.
    subprocess.run([BIN / "opencode", "session", "list"], capture_output=True, check=True)
    return f"{BIN / 'opencode'} run --model scripted/scripted {{prompt}}"


class Epic:
    """An epic of stories and tasks; every fourth task is handed over half done."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.halved: list[str] = []
        with Client() as client:

            def add(goal: str, **data: Any) -> str:
                return str(client.work("add", data={"goal": goal, **data})["added"])

            self.id = add("the epic", kind="epic")
            stories = [
                add(f"story {number}", kind="story", parent=self.id) for number in range(-(-(FRAMES - 1) // STORY))
            ]
            for number in range(FRAMES - 1 - len(stories)):
                is_halved = number % 4 == 1
                goal = f"hand it over, {number}" if is_halved else f"write a file, {number}"
                blocks = self.tasks[-1:] if is_halved else []
                self.tasks.append(add(goal, parent=stories[number // (STORY - 1)], blocks=blocks))
                self.halved += self.tasks[-1:] if is_halved else []


@pytest.mark.parametrize("configure", [claude, opencode])
def test_a_real_agent_program_drains_an_epic(
    configure: Any, model: str, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-5, E-12: each task in a worktree; some are handed over half done; hooks reach the leased frame."""
    agent = configure(repository.parent / "home", model, monkeypatch)
    epic = Epic()
    options = ["--headless", "--worktrees", "--json", "--max-continuations", "1000"]
    command = [str(PROGRAM), "work", "--epic", epic.id, *options]
    done = subprocess.run([*command, "--agent-cmd", agent], capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for task in epic.tasks:
        kinds = [event["what"] for event in told if event["task"] == task]
        twice = ["partial", "continued"] if task in epic.halved else []
        assert kinds == ["first", *twice, "passed", "completed"]
    with Client() as client:
        for task in epic.tasks:
            left = client.handoff(task)
            assert (left["status"], left["summary"]) == ("PASS", f"The agent wrote {task}.txt.")
            seen = client.work("list", task, fields="full")["frame"].get("wip", {})
            assert seen.get("last_commit"), f"no hook has seen the commit: {client.work('list', 'f1', fields='full')}"
    number = told[-1]["text"].split()[1]
    listed = ["git", "ls-tree", "--name-only", f"work/chain-{number}"]
    files = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    assert files.split() == sorted(f"{task}.txt" for task in epic.tasks)
