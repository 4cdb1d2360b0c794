"""Failures on the wire: recreates, for the caller, the error that a process below has raised."""

from __future__ import annotations

from collections.abc import Mapping

from rlm_contexts.errors import ContextError, CorruptText, InvalidRegex, ScanTimeout, TextTooLarge
from rlm_ipc.errors import (
    CallerError,
    KernelBusy,
    KernelDied,
    KernelError,
    MachineFull,
    PolicyLooser,
    ProcessError,
    ProtocolError,
    SessionExpelled,
    UnknownKernel,
    UnknownVariable,
    WallsMissing,
    wire_fields,
)
from rlm_ipc.messages import read
from rlm_ipc.worker_requests import Failure

# Not every error class of ours: a hostile process below must not claim that its supervisor is gone.
_BY_NAME: dict[str, type[KernelError | ContextError]] = {
    kind.__name__: kind
    for kind in (
        CallerError,
        CorruptText,
        InvalidRegex,
        KernelBusy,
        KernelDied,
        KernelError,
        MachineFull,
        PolicyLooser,
        ProcessError,
        ProtocolError,
        ScanTimeout,
        SessionExpelled,
        TextTooLarge,
        UnknownKernel,
        UnknownVariable,
        WallsMissing,
    )
}

_OF_WORKERS = frozenset(
    kind.__name__ for kind in (CallerError, CorruptText, InvalidRegex, ScanTimeout, TextTooLarge, UnknownVariable)
)


def from_wire(data: Mapping[str, object]) -> KernelError | ContextError:
    """Return the error that `to_wire` described; an unknown or malformed one becomes a plain KernelError."""
    message = str(data.get("message"))
    kind = _BY_NAME.get(str(data.get("error")), KernelError)
    # Its constructor would build the message again; args, from which str() is made, are set here.
    made = kind.__new__(kind, message)
    try:
        for name, declared in wire_fields(kind).items():
            setattr(made, name, read(declared, data[name]))
    except (KeyError, ProtocolError):
        return KernelError(message)
    return made


def from_worker(failure: Failure) -> KernelError | ContextError:
    """Return the error that a worker has described.

    A worker only knows about requests and texts. Only the supervisor reports that a process died or a session was
    ended: code whose ``__repr__`` raises such an error must not be believed.
    """
    if failure.error not in _OF_WORKERS:
        return KernelError(failure.message)
    return from_wire({**failure.details, "error": failure.error, "message": failure.message})
