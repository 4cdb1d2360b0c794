"""Errors of the layers below a tool: each class has its code and what to do next, and a tool answers with them."""

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlm_contexts import errors as context
from rlm_ipc import errors as kernel
from rlm_ipc.outcomes import Loss, Lost
from rlm_mcp.service.errors import fault_from
from rlm_memory import errors as memory
from rlm_sandbox import errors as sandbox

BASES = (kernel.KernelError, memory.MemoryLayerError, context.ContextError, sandbox.PolicyError)
CODES = {
    "kernel_error": "CallerError DaemonNotStarted DaemonRefused DaemonUnavailable KernelError ProcessError "
    "ProtocolError ToolFailed UnknownKernel",
    "session_ended": "SessionEnded SessionExpelled",
    "variable_not_found": "UnknownVariable",
    "walls_missing": "WallsMissing",
    "policy_looser": "PolicyLooser",
    "kernel_died": "KernelDied SupervisorGone",
    "busy": "KernelBusy KernelWaits",
    "machine_full": "MachineFull",
    "refused": "EdgeRefused MemoryLayerError RowRequestError UnknownSession",
    "handle_not_found": "UnknownHandle",
    "query_not_found": "UnknownQuery",
    "quota_exceeded": "QuotaExceeded TextTooLarge",
    "already_resolved": "InvalidTransition",
    "frame_not_found": "UnknownFrame",
    "frame_status": "FrameStatusRefused",
    "frames_running": "FramesRunning",
    "frame_waits": "FrameWaits",
    "not_ready": "NotReady",
    "path_taken": "PathTaken",
    "lease_lost": "LeaseLost",
    "store_unavailable": "DiskFull StoreError StoreFault StoreTooNew StoreTooOld StoreUnavailable",
    "context_error": "ContextError TextRequestError",
    "cannot_read": "OutOfReach SourceChanged SourceError SourceGone",
    "invalid_arguments": "BadRange",
    "not_text": "NotSearchable",
    "content_damaged": "ContentDamaged",
    "content_lost": "CorruptText UnknownText",
    "not_installed": "MissingExtra",
    "invalid_query": "QueryRefused",
    "invalid_regex": "InvalidRegex",
    "scan_timeout": "ScanTimeout",
    "search_died": "SearchDied",
    "timeout": "HelperTimeout",
    "helper_died": "HelperDied",
    "policy_error": "PolicyError PolicyFileError PolicyLinkError PolicyUnreadableError UnknownPolicyError",
    "policy_lost": "PolicyLostError",
}
"""What agents know an error by, and the classes of each."""


def _family(kind: Any) -> Iterator[Any]:
    """A class of the layers' own modules, and those below it."""
    if kind.__module__ in {base.__module__ for base in BASES}:
        yield kind
    for below in kind.__subclasses__():
        yield from _family(below)


def test_every_error_has_the_code_that_agents_know_it_by() -> None:
    """A class that comes later is named here, so that nobody's failure changes its code unseen."""
    known = {name: code for code, names in CODES.items() for name in names.split()}
    assert {kind.__name__: kind.code for base in BASES for kind in _family(base)} == known


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            kernel.UnknownVariable("x", ["a"], "it was rolled back"),
            {
                "error": "variable_not_found",
                "name": "x",
                "available": ["a"],
                "message": "no variable 'x' in this session: it was rolled back",
                "hint": "names are case-sensitive; use one of `available`, or load it with load_context",
            },
        ),
        (
            kernel.KernelDied("was killed", Loss(Lost.NOTHING)),
            {
                "error": "kernel_died",
                "message": "was killed; no variable was lost",
                "hint": "change the code that ended the process, then call eval_code again",
            },
        ),
        (
            context.SourceError("no such file", "name another"),
            {"error": "cannot_read", "message": "no such file", "hint": "name another"},
        ),
        (context.BadRange("offset is -1"), {"error": "invalid_arguments", "message": "offset is -1"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_has_the_code_the_fields_the_message_and_the_hint(error: Exception, said: dict[str, object]) -> None:
    """In this order; without a hint if the message says it all."""
    assert list(fault_from(error).answer().items()) == list(said.items())


def _store_error(number: int) -> Exception:
    error = context.StoreError("cannot write")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


@pytest.mark.parametrize(
    "failed",
    [_store_error, lambda number: memory.fault("/nowhere/db", OSError(number, os.strerror(number)))],
    ids=["texts", "database"],
)
def test_a_store_that_fails_on_a_full_disk_says_so(failed: Callable[[int], Exception]) -> None:
    """Only then: another failure of it is for `rlm-kernel doctor`."""
    assert fault_from(failed(errno.EACCES)).code == "store_unavailable"
    full = fault_from(failed(errno.ENOSPC)).answer()
    assert (full["error"], full["resource"]) == ("machine_full", "disk")
    assert "free space on the disks of" in full["hint"]
