"""Six agent programs as users set them up: what `rlm-kernel config` prints, in the file that the docs name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PROGRAMS", "Program"]

Files = Mapping[str, str]
"""Texts by path, below the home folder."""


def _json(**content: object) -> str:
    return json.dumps(content)


@dataclass(frozen=True)
class Program:
    """An agent program.

    In a text, ``{url}`` stands for the scripted model, ``{home}`` for the home folder, ``{block}`` for what we print.
    """

    client: str
    """Its name for `rlm-kernel config`."""
    command: Sequence[str]
    """Runs the prompt that follows without a person, and allows our tools as docs/clients.md says."""
    block: str
    """Where our block belongs: a path below the home folder (``~/``) or the workspace."""
    environment: Mapping[str, str]
    around: str = "{block}"
    """The text of the file that holds our block."""
    files: Files = field(default_factory=dict)
    """Further files below the home folder: nothing of ours."""
    passes_pictures: bool = True
    """Whether it gives the pictures in a tool's answer to the model of a provider that the user has chosen."""

    def install(self, printed: str, url: str, home: Path, workspace: Path) -> dict[str, str]:
        """Write the program's files; returns the environment that it needs."""

        def filled(text: str) -> str:
            return text.replace("{block}", printed).replace("{url}", url).replace("{home}", str(home))

        block = home / self.block[2:] if self.block.startswith("~/") else workspace / self.block
        texts = {home / name: text for name, text in self.files.items()} | {block: self.around}
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(filled(text))
        return {name: filled(value) for name, value in self.environment.items()}


_QUIET = {"privacy": {"usageStatisticsEnabled": False}, "general": {"disableAutoUpdate": True}}
_OPENCODE_MODEL = {
    "name": "scripted",
    "tool_call": True,
    "attachment": True,
    "modalities": {"input": ["text", "image"], "output": ["text"]},
    "limit": {"context": 200_000, "output": 8_000},
}
_OPENCODE = _json(
    model="scripted/scripted",
    small_model="scripted/scripted",
    share="disabled",
    autoupdate=False,
    provider={
        "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": "{url}/v1", "apiKey": "x"},
            "models": {"scripted": _OPENCODE_MODEL},
        }
    },
)
_CODEX = """model = "gpt-5-codex"
model_provider = "scripted"
{block}
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"""

PROGRAMS = (
    Program(
        "claude-code",
        ("claude", "--model", "sonnet", "--allowedTools", "mcp__rlm-kernel", "-p"),
        ".mcp.json",
        {
            "ANTHROPIC_BASE_URL": "{url}",
            "ANTHROPIC_API_KEY": "x",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
        files={".claude.json": _json(hasCompletedOnboarding=True)},
    ),
    Program(
        "opencode",
        ("opencode", "run", "--model", "scripted/scripted"),
        "opencode.json",
        {"OPENCODE_CONFIG": "{home}/opencode.json", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
        files={"opencode.json": _OPENCODE},
    ),
    Program(
        "codex",
        ("codex", "exec", "-c", 'mcp_servers.rlm-kernel.default_tools_approval_mode="approve"'),
        "~/.codex/config.toml",
        {"SCRIPTED_KEY": "x"},
        around=_CODEX,
    ),
    Program(
        "gemini-cli",
        ("gemini", "--yolo", "-m", "gemini-2.5-pro", "-p"),
        ".gemini/settings.json",
        {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
        files={".gemini/settings.json": _json(security={"auth": {"selectedType": "gemini-api-key"}}, **_QUIET)},
    ),
    Program(
        "qwen-code",
        ("qwen", "--yolo", "-m", "gpt-4o", "-p"),
        ".qwen/settings.json",
        {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "x", "OPENAI_MODEL": "gpt-4o"},
        files={".qwen/settings.json": _json(security={"auth": {"selectedType": "openai"}}, **_QUIET)},
    ),
    Program(
        "copilot-cli",
        ("copilot", "--allow-tool", "rlm-kernel", "-p"),
        "~/.copilot/mcp-config.json",
        {
            "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
            "COPILOT_PROVIDER_TYPE": "openai",
            "COPILOT_PROVIDER_API_KEY": "x",
            "COPILOT_MODEL": "gpt-4.1",
            "COPILOT_OFFLINE": "true",
        },
        passes_pictures=False,
    ),
)
