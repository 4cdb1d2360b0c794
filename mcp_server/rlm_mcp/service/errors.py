"""The error answers of tools: a code, helpful fields, a message and a hint.

    RlmMcpError (rlm_mcp.errors)
    └── ClientFault
        └── ToolFault            carries the JSON object that the agent gets

The classes of errors in the layers below have their own code, hint and fields. `fault_from` turns each into a
`ToolFault`, so that every tool answers the same failure in the same way.
"""

from __future__ import annotations

import difflib
import errno
import logging
from collections.abc import Iterable
from typing import Any

from rlm_contexts import errors as context
from rlm_ipc import errors as kernel
from rlm_ipc.messages import JsonObject
from rlm_mcp.errors import ClientFault
from rlm_memory import errors as memory
from rlm_sandbox import errors as sandbox

log = logging.getLogger(__name__)


class ToolFault(ClientFault):
    """A refused or failed call. ``code`` is the value of ``error`` in the answer."""

    def __init__(self, code: str, message: str, hint: str = "", **fields: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.fields = fields

    @property
    def text(self) -> str:
        """The message and the hint, for a protocol whose errors have one text."""
        return "; ".join(filter(None, (self.message, self.hint)))

    def without_traceback(self) -> ToolFault:
        """Return the same fault without its traceback, which would keep the frames that it passed alive."""
        return ToolFault(self.code, self.message, self.hint, **self.fields)

    def answer(self) -> JsonObject:
        """Return the JSON object: error, the helpful fields, message, hint."""
        answer = {"error": self.code, **self.fields, "message": self.message}
        return {**answer, "hint": self.hint} if self.hint else answer


def refuse_unknown(tool: str, data: Iterable[str], known: Iterable[str], hint: str) -> None:
    """Refuse a field that a call does not take, because its value would be lost.

    Raises:
        ToolFault: there is such a field; the message suggests a similar one.
    """
    if unknown := sorted(set(data) - set(known)):
        name = unknown[0][:80]
        near = difflib.get_close_matches(name, sorted(known), n=1)
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise ToolFault("invalid_arguments", f"{tool}: the field {name!r} is unknown{meant}", hint)


def invalid_name(name: str, reason: str, better: str = "") -> ToolFault:
    """The name cannot be used for a variable."""
    hint = f"use {better!r}" if better else "use a plain Python identifier such as log_data"
    return ToolFault("invalid_name", f"{name[:80]!r} {reason}", hint, name=name[:80])


def run_not_found(run: str, active: list[str]) -> ToolFault:
    """No run of that id in this session, or none at all."""
    if not run:
        return ToolFault(
            "run_not_found", "this session has no run to wait for", "call eval_code to start one", active=[]
        )
    return ToolFault(
        "run_not_found",
        f"there is no run {run[:40]!r} in this session; its result may already have been collected",
        "call wait without arguments for the latest run, or eval_code to start one",
        run=run[:40],
        active=active,
    )


OF_LAYERS_BELOW = (kernel.KernelError, memory.MemoryLayerError, context.ContextError, sandbox.PolicyError)
"""The errors that the layers below raise on purpose."""


def fault_from(error: Exception) -> ToolFault:
    """Turn an error of a layer below into the agent's answer; an unexpected error is logged."""
    if isinstance(error, ToolFault):
        return error
    if is_disk_full(error):
        error = kernel.MachineFull("disk", str(error))
    error = kernel.machine_full(error) or error
    if isinstance(error, kernel.KernelError | memory.MemoryLayerError | context.ContextError):
        message = error.what if isinstance(error, context.SourceError) else str(error)
        return ToolFault(error.code, message, error.hint, **error.details())
    if isinstance(error, sandbox.PolicyError):
        message = error.without_content() if isinstance(error, sandbox.PolicyFileError) else str(error)
        return ToolFault(error.code, message, error.hint)
    log.error("a tool failed in an unexpected way", exc_info=error)
    return ToolFault(
        "internal_error",
        f"rlm-kernel failed: {type(error).__name__}: {error}",
        "this is a bug in rlm-kernel, not in your call; the daemon's log has the details",
    )


def is_disk_full(error: Exception) -> bool:
    """Tell whether an error of the database or of the store of texts is due to a full disk."""
    if isinstance(error, context.StoreError):
        return getattr(error.__cause__, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    return isinstance(error, memory.DiskFull)
