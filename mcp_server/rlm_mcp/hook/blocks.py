"""The configuration of our hooks for each client: the events, the tools, and a command that cannot fail.

Every event costs the client a process, so only a few are registered, and events of tools only for relevant tools.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlm_ipc.late_dataclasses import dataclass

_STARTED = "import sys; sys.path.append(sys.argv.pop(1)); from rlm_mcp.hook.program import run; run(sys.argv[1:])"
_OURS = "mcp__rlm-kernel__(plan|push|pop|frame|work|handoff)"
"""Our tools that need to know the calling sub-agent: the hook before the call names it."""


@dataclass(frozen=True)
class Installation:
    """What runs the hooks: the interpreter, the folder of our packages, and the daemon's hook folder."""

    python: str
    packages: str
    folder: str

    def command(self, client: str, event: str) -> str:
        """Return a shell line for one event. It exits with status 0, whatever is missing or broken."""
        start = [self.python, "-I", "-S", "-c", _STARTED, self.packages, self.folder, client, event]
        return f"[ -x {shlex.quote(self.python)} ] && {shlex.join(start)} 2>/dev/null; exit 0"


@dataclass(frozen=True)
class HookBlock:
    """How to configure hooks in one client; ``trust`` is what its user must do in addition, if anything."""

    file: str
    events: Mapping[str, str]
    """The events that are registered, and for which tools: a regular expression, empty for all."""
    render: Callable[[Mapping[str, str], Callable[[str], str], Installation], str]
    trust: str = ""


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _by_matcher(timeout: int) -> Callable[[Mapping[str, str], Callable[[str], str], Installation], str]:
    def render(events: Mapping[str, str], command: Callable[[str], str], _: Installation) -> str:
        hooks = {}
        for event, tools in events.items():
            run = {"type": "command", "command": command(event), "timeout": timeout}
            hooks[event] = [{"matcher": tools or "*", "hooks": [run]}]
        return _json({"hooks": hooks})

    return render


def _copilot(events: Mapping[str, str], command: Callable[[str], str], _: Installation) -> str:
    hooks = {event: [{"type": "command", "bash": command(event), "timeoutSec": 1}] for event in events}
    return _json({"version": 1, "hooks": hooks})


def _plugin(events: Mapping[str, str], command: Callable[[str], str], installed: Installation) -> str:
    source = Path(__file__).with_name("opencode_plugin.js").read_text("utf-8")
    return source.replace('"@FOLDER@"', json.dumps(installed.folder))


_CLAUDE_WRITES = "Write|Edit|MultiEdit|NotebookEdit"
_CODEX_WRITES = "apply_patch|Bash"  # it writes by a shell that runs apply_patch
_QWEN_WRITES = "write_file|edit"
_COPILOT_EVENTS = "sessionStart userPromptSubmitted subagentStart preToolUse postToolUse preCompact".split()

BLOCKS: Mapping[str, HookBlock] = {
    "claude-code": HookBlock(
        ".claude/settings.local.json or ~/.claude/settings.json",
        {
            "SessionStart": "",
            "SubagentStart": "",
            "SubagentStop": "",
            "PreToolUse": f"{_CLAUDE_WRITES}|{_OURS}",
            "PostToolUse": f"{_CLAUDE_WRITES}|Bash",
            "PostToolUseFailure": "Bash",
            "PreCompact": "",
        },
        _by_matcher(timeout=1),
    ),
    "codex": HookBlock(
        "~/.codex/hooks.json",
        {
            "SessionStart": "",
            "SubagentStart": "",
            "SubagentStop": "",
            "PreToolUse": _CODEX_WRITES,
            "PostToolUse": _CODEX_WRITES,
            "PreCompact": "",
        },
        _by_matcher(timeout=1),
        "Codex runs a hook only after you have trusted it: it asks when it starts next.",
    ),
    "gemini-cli": HookBlock(
        ".gemini/settings.json or ~/.gemini/settings.json",
        {
            "BeforeAgent": "",
            "BeforeTool": "write_file|replace",
            "AfterTool": "write_file|replace|run_shell_command",
        },
        _by_matcher(timeout=1000),
        "Gemini runs hooks of a project only in folders that you trust.",
    ),
    "qwen-code": HookBlock(
        ".qwen/settings.json or ~/.qwen/settings.json",
        {
            "SessionStart": "",
            "UserPromptSubmit": "",
            "SubagentStart": "",
            "PreToolUse": _QWEN_WRITES,
            "PostToolUse": f"{_QWEN_WRITES}|run_shell_command",
            "PostToolUseFailure": "run_shell_command",
            "PreCompact": "",
            "PostCompact": "",
        },
        _by_matcher(timeout=1000),
    ),
    "copilot-cli": HookBlock(
        ".github/hooks/rlm-kernel.json or ~/.copilot/hooks/rlm-kernel.json",
        dict.fromkeys(_COPILOT_EVENTS, ""),
        _copilot,
    ),
    "opencode": HookBlock(".opencode/plugins/rlm-kernel.js or ~/.config/opencode/plugins/rlm-kernel.js", {}, _plugin),
}
"""The clients by the names of `rlm-kernel config`."""
