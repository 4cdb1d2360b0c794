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
    Began,
    CallAsked,
    Compacted,
    Edited,
    Event,
    Origin,
    Prompted,
    ShellRan,
    Stopped,
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

    kinds: Mapping[str, Reader]
    """The events that are read, by its names for them, each with its reader."""
    writes: frozenset[str]
    """Its tools that write files."""
    shells: frozenset[str]
    response: str = "tool_response"
    printed: tuple[str, ...] = ("stdout", "stderr")
    """Where a shell's output is: in these parts of the response, unless that is a text itself."""
    tool: str = "tool_name"
    arguments: str = "tool_input"
    call: str = "tool_use_id"
    session: str = "session_id"
    agent: str = "agent_id"
    path: tuple[str, ...] = ("file_path", "notebook_path")
    """Arguments of a tool that name a file."""


Reader = Callable[[Dialect, Origin, Given], Event]


def read_event(client: str, name: str, given: str) -> Event:
    """Return the event in the input of a client's hook; never raises."""
    try:
        said = json.loads(given)
    except (ValueError, RecursionError):
        said = None
    said = said if isinstance(said, dict) else {}
    dialect = DIALECTS.get(client)
    if dialect is None:
        return Event(Origin(client))
    agent = _text(said, dialect.agent)
    origin = Origin(client, _text(said, dialect.session), agent, _text(said, "cwd"))
    read = dialect.kinds.get(name)
    return read(dialect, origin, said) if read else Event(origin)


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
    return CallAsked(origin, call)


def _after_tool(dialect: Dialect, origin: Origin, given: Given) -> Event:
    tool = _text(given, dialect.tool)
    if tool in dialect.writes or (tool in dialect.shells and _is_patch(dialect, given)):
        return Edited(origin, _paths(dialect, origin, given))
    if tool in dialect.shells:
        return _shell(dialect, origin, given, _printed(dialect, given))
    return Event(origin)


def _after_failure(dialect: Dialect, origin: Origin, given: Given) -> Event:
    if _text(given, dialect.tool) in dialect.shells:
        return _shell(dialect, origin, given, _text(given, "error", 1 << 20))
    return Event(origin)


def _shell(dialect: Dialect, origin: Origin, given: Given, output: str) -> Event:
    arguments = _part(given, dialect.arguments)
    command = _text(arguments, "command", 1 << 20) or _text(arguments, "cmd", 1 << 20)
    known = _exit_of(given)
    # Clients write the status before or behind what was printed: of what stands between, anybody may be the author.
    edges = _STATUS.findall(f"{output[:200]}\n{output[-400:]}") if known is None else []
    return ShellRan(origin, command, output, int(edges[-1]) if edges else known)


def _printed(dialect: Dialect, given: Given) -> str:
    """Return what a shell has printed."""
    response = given.get(dialect.response)
    if isinstance(response, str):
        return response
    return "\n".join(filter(None, (_text(response, name, 1 << 20) for name in dialect.printed)))


def _exit_of(given: Given) -> int | None:
    value = _part(given, "tool_response").get("exit")
    return value if type(value) is int else None


def _plain(kind: type[Event]) -> Reader:
    """Return a reader for events that have only an origin."""
    return lambda _dialect, origin, _given: kind(origin)


_began, _stopped, _prompted, _compacted = map(_plain, (Began, Stopped, Prompted, Compacted))

_COMMON = {
    "PreToolUse": _before_tool,
    "PostToolUse": _after_tool,
    "PostToolUseFailure": _after_failure,
    "SessionStart": _began,
    "UserPromptSubmit": _prompted,
    "PreCompact": _compacted,
    "PostCompact": _compacted,
    "SubagentStart": _began,
    "SubagentStop": _stopped,
}

DIALECTS: Mapping[str, Dialect] = {
    "claude-code": Dialect(
        kinds=_COMMON,
        writes=frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"}),
        shells=frozenset({"Bash"}),
    ),
    "codex": Dialect(
        kinds=_COMMON,
        writes=frozenset({"apply_patch"}),
        shells=frozenset({"Bash", "shell", "exec_command"}),
    ),
    "gemini-cli": Dialect(
        # PreCompress is no sign of a compaction: it comes before every call of the model.
        kinds={
            "BeforeTool": _before_tool,
            "AfterTool": _after_tool,
            "SessionStart": _began,
            "BeforeAgent": _prompted,
        },
        writes=frozenset({"write_file", "replace"}),
        shells=frozenset({"run_shell_command"}),
        printed=("llmContent",),
    ),
    "qwen-code": Dialect(
        kinds=_COMMON,
        writes=frozenset({"write_file", "edit"}),
        shells=frozenset({"run_shell_command"}),
        printed=("llmContent",),
    ),
    "copilot-cli": Dialect(
        kinds={
            "preToolUse": _before_tool,
            "postToolUse": _after_tool,
            "sessionStart": _began,
            "userPromptSubmitted": _prompted,
            "preCompact": _compacted,
            "subagentStart": _began,
            "subagentStop": _stopped,
        },
        writes=frozenset({"create", "edit"}),
        shells=frozenset({"bash"}),
        tool="toolName",
        arguments="toolArgs",
        session="sessionId",
        agent="agentId",
        path=("path", "file_path"),
        response="toolResult",
        printed=("textResultForLlm",),
    ),
    "opencode": Dialect(
        # These names are those of our own plugin.
        kinds={
            "tool.execute.before": _before_tool,
            "tool.execute.after": _after_tool,
            "session.created": _began,
            "session.compacted": _compacted,
            "chat.message": _prompted,
        },
        writes=frozenset({"write", "edit", "patch", "multiedit", "apply_patch"}),
        shells=frozenset({"bash"}),
        tool="tool",
        arguments="args",
        call="callID",
        session="sessionID",
        agent="agentID",
        path=("filePath",),
        printed=("output",),
    ),
}
"""The clients by the names of `rlm-kernel config`."""
