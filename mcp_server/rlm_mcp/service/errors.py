"""What a tool answers when it cannot do what was asked: a code, the fields that help, a message and a hint.

    RlmMcpError (rlm_mcp.errors)
    └── ClientFault
        └── ToolFault            carries the JSON object that the agent gets

Errors of the layers below become `ToolFault` in one place, `fault_from`, so that every tool answers the same
failure with the same code.
"""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Callable
from typing import Any

from rlm_contexts import errors as context
from rlm_ipc import discovery
from rlm_ipc import errors as kernel
from rlm_ipc.messages import JsonObject
from rlm_ipc.outcomes import Lost
from rlm_mcp.errors import ClientFault
from rlm_memory import errors as memory
from rlm_sandbox import errors as sandbox

__all__ = [
    "ToolFault",
    "fault_from",
    "invalid_arguments",
    "invalid_name",
    "kernel_died",
    "run_not_found",
    "variable_not_found",
]

log = logging.getLogger(__name__)


class ToolFault(ClientFault):
    """A refused or failed call. ``code`` is the value of ``error`` in the answer."""

    def __init__(self, code: str, message: str, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.fields = fields

    def anew(self) -> ToolFault:
        """Return the same fault without its traceback, which would keep every frame it came through alive."""
        return ToolFault(self.code, self.message, self.hint, **self.fields)

    def answer(self) -> JsonObject:
        """Return the JSON object: error, the helpful fields, message, hint."""
        said = {"error": self.code, **self.fields, "message": self.message}
        return {**said, "hint": self.hint} if self.hint else said


def variable_not_found(name: str, available: list[str], because: str = "") -> ToolFault:
    """No context or kernel variable has that name; ``because`` says what became of it, if known."""
    message = f"no variable {name!r} in this session"
    hint = "names are case-sensitive; use one of `available`, or load it with load_context"
    return ToolFault(
        "variable_not_found",
        f"{message}: {because}" if because else message,
        hint if available else "nothing is loaded in this session; load it with load_context",
        name=name,
        available=available,
    )


def invalid_arguments(tool: str, message: str, accepted: dict[str, str]) -> ToolFault:
    """The arguments do not fit the tool; ``accepted`` maps each argument it takes to its type."""
    return ToolFault(
        "invalid_arguments",
        message,
        f"call {tool} with the arguments listed in `accepted`",
        accepted=accepted,
    )


def invalid_name(name: str, reason: str, better: str = "") -> ToolFault:
    """The name cannot be used for a variable."""
    hint = f"use {better!r}" if better else "use a plain Python identifier such as log_data"
    return ToolFault("invalid_name", f"{name[:80]!r} {reason}", hint, name=name[:80])


def run_not_found(run: str, active: list[str]) -> ToolFault:
    """No run of that id in this session."""
    return ToolFault(
        "run_not_found",
        f"no run {run[:40]!r} in this session; its result may have been collected already",
        "call wait without arguments for the latest run, or eval_code to start one",
        run=run[:40],
        active=active,
    )


def kernel_died(error: kernel.KernelDied | kernel.SupervisorGone) -> ToolFault:
    """The process that ran the session's code is gone."""
    loss = error.loss if isinstance(error, kernel.KernelDied) else None
    if loss is not None and loss.what is Lost.NOTHING:
        return ToolFault("kernel_died", str(error), "change the code that ended the process, then call eval_code again")
    return ToolFault(
        "kernel_died",
        str(error),
        "call eval_code again: a fresh kernel starts with every loaded context; define lost variables again",
    )


def fault_from(error: Exception) -> ToolFault:
    """Turn an error of a layer below into the agent's answer; an unexpected error is logged."""
    for kind, make in _MAKERS:
        if isinstance(error, kind):
            return make(error)
    if (full := kernel.machine_full(error)) is not None:
        return _full(full)
    log.error("a tool failed in an unexpected way", exc_info=error)
    return ToolFault(
        "internal_error",
        f"rlm-kernel failed: {type(error).__name__}: {error}",
        "this is a bug in rlm-kernel, not in your call; the daemon's log has the details",
    )


def _unknown_context(error: Any) -> ToolFault:
    return variable_not_found(error.name, list(error.available))


def _unknown_handle(error: Any) -> ToolFault:
    return ToolFault(
        "handle_not_found",
        f"no handle {error.handle[:80]!r} that this session may resolve",
        "ask the owning session to call register_handle again and to name this session in share_with",
        handle=error.handle[:80],
    )


def _quota(error: Any) -> ToolFault:
    return ToolFault(
        "quota_exceeded",
        str(error),
        "unload texts that are no longer needed, load a part, or use a policy with larger limits.content_bytes",
        used_bytes=error.used,
        limit_bytes=error.limit,
    )


def _unknown_query(error: Any) -> ToolFault:
    return ToolFault(
        "query_not_found",
        str(error),
        "use the ids in pending_llm_queries",
        id=error.query[:80],
        pending=error.pending,
    )


def _transition(error: Any) -> ToolFault:
    return ToolFault("already_resolved", str(error), "it needs no other answer", id=error.key, state=error.current)


def _store(error: Any) -> ToolFault:
    cause = error.__cause__
    code = getattr(getattr(cause, "orig", None), "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL or getattr(cause, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return _full(kernel.MachineFull("disk", str(error)))
    return ToolFault("store_unavailable", str(error), "run `rlm-kernel doctor`")


def _unknown_variable(error: Any) -> ToolFault:
    return variable_not_found(error.name, list(error.available))


def _busy(error: Any) -> ToolFault:
    return ToolFault("busy", str(error), "wait(run) for the running code, or interrupt it, then call again")


def _regex(error: Any) -> ToolFault:
    return ToolFault(
        "invalid_regex",
        str(error),
        "patterns are Python regular expressions; escape special characters with a backslash",
        pattern=error.pattern[:200],
        position=error.position,
    )


def _scan_timeout(error: Any) -> ToolFault:
    found = {"found_so_far": len(error.matches), "next_line": error.next_line}
    return ToolFault("scan_timeout", str(error), "use a simpler pattern, or search a part with eval_code", **found)


def _too_large(error: Any) -> ToolFault:
    return ToolFault("quota_exceeded", str(error), "load a part of the text", limit_bytes=error.limit)


def _unreadable(error: Any) -> ToolFault:
    return ToolFault("cannot_read", error.what, error.advice)


def _missing_extra(error: Any) -> ToolFault:
    return ToolFault("not_installed", str(error), "install it in rlm-kernel's environment, then call again")


def _query_refused(error: Any) -> ToolFault:
    said = "correct the SQL (DuckDB's dialect); each context is a table with its name, var_info shows its columns"
    return ToolFault("invalid_query", str(error), said)


def _helper_timeout(error: Any) -> ToolFault:
    return ToolFault("timeout", str(error), "ask for less, or use eval_code")


def _helper_died(error: Any) -> ToolFault:
    return ToolFault("helper_died", str(error), "ask for less; if that does not help, see the daemon's log")


def _text_lost(error: Any) -> ToolFault:
    return ToolFault("content_lost", str(error), "unload the variable and load it again")


def _ended(error: Any) -> ToolFault:
    return ToolFault("session_ended", str(error), "call again to start a new, empty session of that name")


def _range(error: Any) -> ToolFault:
    return ToolFault("invalid_arguments", str(error))


def _not_searchable(error: Any) -> ToolFault:
    return ToolFault("not_text", str(error), "convert it to a string or a list of strings with eval_code")


def _policy(error: Any) -> ToolFault:
    return ToolFault("policy_error", str(error))


def _policy_file(error: Any) -> ToolFault:
    return ToolFault("policy_error", error.without_content(), "ask the user to correct it, or name another policy")


def _policy_lost(error: Any) -> ToolFault:
    said = "ask the user to run `rlm-kernel policy apply SESSION PATH`, or use another session id"
    return ToolFault("policy_lost", str(error), said)


def _walls(error: Any) -> ToolFault:
    return ToolFault("walls_missing", str(error), "run `rlm-kernel doctor`, or choose another policy")


def _expelled(error: Any) -> ToolFault:
    return ToolFault(
        "session_ended",
        str(error),
        "variables and loaded texts are gone; call eval_code to start a new session, and stay within the policy",
    )


def _looser(error: Any) -> ToolFault:
    return ToolFault(
        "policy_looser",
        str(error),
        "omit policy to keep the same one, or name a stricter one",
        policy=error.policy,
        fields=error.fields,
    )


def _no_frame(error: Any) -> ToolFault:
    return ToolFault("frame_not_found", str(error), "call frame to see the tree", frame=error.frame[:80])


def _frame_status(error: Any) -> ToolFault:
    return ToolFault("frame_status", str(error), error.advice, frame=error.frame, status=error.status)


def _frames_running(error: Any) -> ToolFault:
    hint = "pop them first, or pass children='adopt' (they move up to its parent) or children='fail'"
    return ToolFault("frames_running", str(error), hint, frame=error.frame, running=error.running)


def _row_refused(error: Any) -> ToolFault:
    return ToolFault("refused", str(error), "change the request as the message says and call again")


_ROOM = {
    "sessions": "or raise RLM_KERNEL_MAX_SESSIONS and run `rlm-kernel daemon stop --all`",
    "descriptors": "or raise the limit of open files (`ulimit -n`)",
    "processes": "or raise the limit of processes (`ulimit -u`, or the container's pids limit)",
    "memory": "or unload large variables",
}


def _full(error: Any) -> ToolFault:
    more = _ROOM.get(error.resource, "")
    if error.resource == "disk":
        more = f"or free space on the disks of {discovery.state_dir()} and {discovery.runtime_dir()}"
    less = "end unused sessions (`rlm-kernel sessions` lists them; idle ones end by themselves)"
    return ToolFault("machine_full", str(error), f"{less}, {more}; then call again", resource=error.resource)


def _kernel(error: Any) -> ToolFault:
    return ToolFault("kernel_error", str(error), "change the call as the message says, then call again")


_MAKERS: tuple[tuple[type[Exception], Callable[[Any], ToolFault]], ...] = (
    (ToolFault, lambda error: error),
    (memory.SessionEnded, _ended),
    (memory.UnknownContext, _unknown_context),
    (memory.UnknownHandle, _unknown_handle),
    (memory.QuotaExceeded, _quota),
    (memory.UnknownQuery, _unknown_query),
    (memory.InvalidTransition, _transition),
    (memory.UnknownFrame, _no_frame),
    (memory.FrameStatusRefused, _frame_status),
    (memory.FramesRunning, _frames_running),
    (memory.RowRequestError, _row_refused),
    (memory.StoreFault, _store),
    (kernel.KernelDied, kernel_died),
    (kernel.SupervisorGone, kernel_died),
    (kernel.UnknownVariable, _unknown_variable),
    (kernel.KernelBusy, _busy),
    (kernel.MachineFull, _full),
    (kernel.WallsMissing, _walls),
    (kernel.PolicyLooser, _looser),
    (kernel.SessionExpelled, _expelled),
    (kernel.KernelError, _kernel),
    (sandbox.PolicyLostError, _policy_lost),
    (sandbox.PolicyFileError, _policy_file),
    (sandbox.PolicyError, _policy),
    (context.InvalidRegex, _regex),
    (context.ScanTimeout, _scan_timeout),
    (context.TextTooLarge, _too_large),
    (context.SourceError, _unreadable),
    (context.MissingExtra, _missing_extra),
    (context.QueryRefused, _query_refused),
    (context.HelperTimeout, _helper_timeout),
    (context.HelperDied, _helper_died),
    (context.UnknownText, _text_lost),
    (context.CorruptText, _text_lost),
    (context.BadRange, _range),
    (context.NotSearchable, _not_searchable),
    (context.StoreError, _store),
)
