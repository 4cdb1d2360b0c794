"""Parse the input of hooks: six dialects, one kind of event.

`DIALECTS` is the table of their differences. What it says was recorded from the programs themselves; the recordings
are the data of the tests. A field that is missing or of another type reads as empty: a client may change any of them
tomorrow, and an event that says less is better than none.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlm_ipc.late_dataclasses import dataclass
from rlm_mcp.hook.events import (
    AgentStarted,
    AgentStopped,
    CallAsked,
    Compacted,
    Compacting,
    Edited,
    Event,
    Failed,
    Origin,
    Other,
    Prompted,
    SessionEnded,
    SessionStarted,
    ShellRan,
    WriteAsked,
)

Given = Mapping[str, Any]
"""What a client has written: an object of JSON, of which nothing is known."""

_LONGEST = 4096
_MOST_PATHS = 200
_PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.{1,4000})$", re.MULTILINE)
_STATUS = re.compile(r"(?:Exit code|Exit Code:|completed with exit code) (-?\d{1,9})")


@dataclass(frozen=True)
class Dialect:
    """The dialect of one client."""

    kinds: Mapping[str, str]
    """Its names of events, and what they are: keys of `_KINDS`."""
    writes: frozenset[str]
    """Its tools that write files."""
    shells: frozenset[str]
    result: Callable[[Given], str]
    """Returns the text that a shell of its has answered."""
    tool: str = "tool_name"
    arguments: str = "tool_input"
    call: str = "tool_use_id"
    session: str = "session_id"
    agent: str = "agent_id"
    path: tuple[str, ...] = ("file_path", "notebook_path")
    """Arguments of a tool that name a file."""


def read_event(client: str, name: str, given: str) -> Event:
    """Return the event in the input of a client's hook; never raises."""
    try:
        said = json.loads(given)
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    dialect = DIALECTS.get(client)
    if dialect is None:
        return Other(Origin(client), name)
    agent = _text(said, dialect.agent)
    origin = Origin(client, _text(said, dialect.session), agent, _text(said, "cwd"))
    make = _KINDS.get(dialect.kinds.get(name, ""))
    return make(dialect, origin, said) if make else Other(origin, name)


# --- parts of what is given -----------------------------------------------------------------------


def _text(given: object, name: str, longest: int = _LONGEST) -> str:
    value = given.get(name) if isinstance(given, dict) else None
    return value[:longest] if isinstance(value, str) else ""


def _part(given: Given, name: str) -> Given:
    value = given.get(name)
    return value if isinstance(value, dict) else {}


def _paths(dialect: Dialect, origin: Origin, given: Given) -> tuple[str, ...]:
    """Return the files that a call writes: those that its arguments name, and those of a patch."""
    arguments = _part(given, dialect.arguments)
    named = [_text(arguments, name) for name in dialect.path]
    patches = (_text(arguments, name, 1 << 20) for name in ("command", "patch", "patchText", "input"))
    named += [path for patch in patches for path in _patched(patch)]
    whole = (os.path.normpath(os.path.join(origin.folder, path)) for path in named if path)
    return tuple(dict.fromkeys(whole))[:_MOST_PATHS]


def _patched(patch: str) -> Iterator[str]:
    return (found[1].strip() for found in _PATCHED.finditer(patch)) if "*** Begin Patch" in patch else iter(())


def _is_patch(dialect: Dialect, given: Given) -> bool:
    """Tell whether a shell call only applies a patch, as in Codex."""
    return _text(_part(given, dialect.arguments), "command").lstrip().startswith("apply_patch")


# --- kinds of events ------------------------------------------------------------------------------


def _before_tool(dialect: Dialect, origin: Origin, given: Given) -> Event:
    tool, call = _text(given, dialect.tool), _text(given, dialect.call)
    if tool in dialect.writes or (tool in dialect.shells and _is_patch(dialect, given)):
        return WriteAsked(origin, tool, call, _paths(dialect, origin, given))
    return CallAsked(origin, tool, call)


def _after_tool(dialect: Dialect, origin: Origin, given: Given) -> Event:
    tool = _text(given, dialect.tool)
    if tool in dialect.writes or (tool in dialect.shells and _is_patch(dialect, given)):
        return Edited(origin, _paths(dialect, origin, given))
    if tool in dialect.shells:
        return _shell(dialect, origin, given, dialect.result(given))
    return Other(origin, tool)


def _after_failure(dialect: Dialect, origin: Origin, given: Given) -> Event:
    tool, error = _text(given, dialect.tool), _text(given, "error", 1 << 20)
    if tool in dialect.shells:
        return _shell(dialect, origin, given, error)
    return Failed(origin, tool, error[:_LONGEST])


def _shell(dialect: Dialect, origin: Origin, given: Given, output: str) -> Event:
    arguments = _part(given, dialect.arguments)
    command = _text(arguments, "command", 1 << 20) or _text(arguments, "cmd", 1 << 20)
    known = _exit_of(given)
    # Clients write the status before or behind what was printed: of what stands between, anybody may be the author.
    edges = _STATUS.findall(f"{output[:200]}\n{output[-400:]}") if known is None else []
    return ShellRan(origin, command, output, int(edges[-1]) if edges else known)


def _exit_of(given: Given) -> int | None:
    value = _part(given, "tool_response").get("exit")
    return value if type(value) is int else None


def _started(dialect: Dialect, origin: Origin, given: Given) -> Event:
    return SessionStarted(origin, _text(given, "source"))


def _ended(dialect: Dialect, origin: Origin, given: Given) -> Event:
    return SessionEnded(origin, _text(given, "reason"))


def _plain(kind: type[Event]) -> Callable[[Dialect, Origin, Given], Event]:
    """Return a reader for events that have only an origin."""
    return lambda _dialect, origin, _given: kind(origin)


_KINDS: Mapping[str, Callable[[Dialect, Origin, Given], Event]] = {
    "before_tool": _before_tool,
    "after_tool": _after_tool,
    "after_failure": _after_failure,
    "session_start": _started,
    "session_end": _ended,
    "prompt": _plain(Prompted),
    "before_compaction": _plain(Compacting),
    "after_compaction": _plain(Compacted),
    "agent_start": _plain(AgentStarted),
    "agent_stop": _plain(AgentStopped),
}


# --- what a tool has answered ---------------------------------------------------------------------


def _claude_result(given: Given) -> str:
    """Return what a shell printed: an object with both streams, or a text."""
    response = given.get("tool_response")
    if isinstance(response, str):
        return response
    said = _part(given, "tool_response")
    return "\n".join(filter(None, (_text(said, "stdout", 1 << 20), _text(said, "stderr", 1 << 20))))


def _gemini_result(given: Given) -> str:
    return _text(_part(given, "tool_response"), "llmContent", 1 << 20)


def _copilot_result(given: Given) -> str:
    return _text(_part(given, "toolResult"), "textResultForLlm", 1 << 20)


def _plugin_result(given: Given) -> str:
    return _text(_part(given, "tool_response"), "output", 1 << 20)


_COMMON = {
    "PreToolUse": "before_tool",
    "PostToolUse": "after_tool",
    "PostToolUseFailure": "after_failure",
    "SessionStart": "session_start",
    "SessionEnd": "session_end",
    "UserPromptSubmit": "prompt",
    "PreCompact": "before_compaction",
    "PostCompact": "after_compaction",
    "SubagentStart": "agent_start",
    "SubagentStop": "agent_stop",
}

DIALECTS: Mapping[str, Dialect] = {
    "claude-code": Dialect(
        kinds=_COMMON,
        writes=frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"}),
        shells=frozenset({"Bash"}),
        result=_claude_result,
    ),
    "codex": Dialect(
        kinds=_COMMON,
        writes=frozenset({"apply_patch"}),
        shells=frozenset({"Bash", "shell", "exec_command"}),
        result=_claude_result,
    ),
    "gemini-cli": Dialect(
        # PreCompress is no sign of a compaction: it comes before every call of the model.
        kinds={
            "BeforeTool": "before_tool",
            "AfterTool": "after_tool",
            "SessionStart": "session_start",
            "SessionEnd": "session_end",
            "BeforeAgent": "prompt",
        },
        writes=frozenset({"write_file", "replace"}),
        shells=frozenset({"run_shell_command"}),
        result=_gemini_result,
    ),
    "qwen-code": Dialect(
        kinds=_COMMON,
        writes=frozenset({"write_file", "edit"}),
        shells=frozenset({"run_shell_command"}),
        result=_gemini_result,
    ),
    "copilot-cli": Dialect(
        kinds={
            "preToolUse": "before_tool",
            "postToolUse": "after_tool",
            "sessionStart": "session_start",
            "sessionEnd": "session_end",
            "userPromptSubmitted": "prompt",
            "preCompact": "before_compaction",
            "subagentStart": "agent_start",
            "subagentStop": "agent_stop",
        },
        writes=frozenset({"create", "edit"}),
        shells=frozenset({"bash"}),
        tool="toolName",
        arguments="toolArgs",
        session="sessionId",
        agent="agentId",
        path=("path", "file_path"),
        result=_copilot_result,
    ),
    "opencode": Dialect(
        # These names are those of our own plugin.
        kinds={
            "tool.execute.before": "before_tool",
            "tool.execute.after": "after_tool",
            "session.created": "session_start",
            "session.deleted": "session_end",
            "session.compacted": "after_compaction",
            "chat.message": "prompt",
        },
        writes=frozenset({"write", "edit", "patch", "multiedit", "apply_patch"}),
        shells=frozenset({"bash"}),
        tool="tool",
        arguments="args",
        call="callID",
        session="sessionID",
        agent="agentID",
        path=("filePath",),
        result=_plugin_result,
    ),
}
"""The clients by the names of `rlm-kernel config`."""
