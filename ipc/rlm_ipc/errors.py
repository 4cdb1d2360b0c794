"""The errors of the kernel layer, in one tree whose second level says whose fault it was.

Each class defines what a tool answers: ``code``, ``hint`` (what to do next), and further fields as `details`.

KernelError
├── CallerError              the request was wrong: change it and call again
│   ├── UnknownKernel        no such kernel: it ended, or never was
│   ├── SessionExpelled      the kernel was ended because of what its code tried
│   ├── UnknownVariable      no global of that name in the kernel
│   ├── WallsMissing         the policy requires walls that this system cannot raise
│   ├── PolicyLooser         a forked session may not do more than its parent
│   ├── ToolFailed           a tool answered a client with an error
│   └── DaemonRefused        the daemon refuses a client's request
├── ProcessError             a process of ours ended or does not answer
│   ├── KernelDied           the kernel process ended; says what was lost
│   ├── KernelBusy           the kernel runs a cell and the request cannot wait
│   │   └── KernelWaits      ... because the cell waits for answers
│   ├── MachineFull          no room now: memory, processes, descriptors, sessions or disk
│   ├── SupervisorGone       the supervisor ended, with all of its kernels
│   └── DaemonUnavailable    no daemon answers and none could be started
│       └── DaemonNotStarted     starting it was tried and failed
└── ProtocolError            a peer sent bytes that are not a valid message (hostile, or another version)
"""

from __future__ import annotations

import dataclasses
import errno
import typing
from collections.abc import Iterable
from typing import Any

from rlm_ipc import discovery
from rlm_ipc.outcomes import Loss, Lost


class KernelError(Exception):
    """Base of every error that this package raises on purpose."""

    code = "kernel_error"

    @property
    def hint(self) -> str:
        """What to do next; empty if the message says it."""
        return ""

    def details(self) -> dict[str, object]:
        """Further fields of the answer that may help its reader."""
        return {}


class CallerError(KernelError):
    """The request cannot be carried out as asked; the message says what to change."""


class UnknownKernel(CallerError):
    """The supervisor has no live kernel with that id."""

    kernel_id: str

    def __init__(self, kernel_id: str) -> None:
        self.kernel_id = kernel_id
        super().__init__(f"kernel {kernel_id!r} is not running; the next call of its session starts a new one")


class SessionExpelled(CallerError):
    """The kernel and its session were ended because of what their code tried."""

    code = "session_ended"
    hint = "variables and loaded texts are gone; call eval_code to start a new session, and stay within the policy"
    reason: str

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the session was ended: {reason}")


class UnknownVariable(CallerError):
    """The session has no variable or context of that name; ``because`` says what happened to it, if known."""

    code = "variable_not_found"
    name: str
    available: tuple[str, ...]

    def __init__(self, name: str, available: Iterable[str] = (), because: str = "") -> None:
        self.name = name
        self.available = tuple(available)
        message = f"no variable {name!r} in this session"
        super().__init__(f"{message}: {because}" if because else message)

    @property
    def hint(self) -> str:
        """Use another name, or load it."""
        if self.available:
            return "names are case-sensitive; use one of `available`, or load it with load_context"
        return "nothing is loaded in this session; load it with load_context"

    def details(self) -> dict[str, object]:
        """The requested name, and the available ones."""
        return {"name": self.name, "available": list(self.available)}


class WallsMissing(CallerError):
    """The policy requires walls that are not available here, so the kernel was not started."""

    code = "walls_missing"
    hint = "run `rlm-kernel doctor`, or choose another policy"
    missing: tuple[str, ...]

    def __init__(self, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"the policy requires walls that this system cannot raise: {', '.join(self.missing)}; "
            "run `rlm-kernel doctor` to see why, or choose a policy that does not require them"
        )


class PolicyLooser(CallerError):
    """The policy of a forked session allows more than its parent's. ``fields`` names the policy fields that do."""

    code = "policy_looser"
    hint = "omit policy to keep the same one, or name a stricter one"
    policy: str
    parent: str
    fields: tuple[str, ...]

    def __init__(self, policy: str, parent: str, fields: Iterable[str]) -> None:
        self.policy, self.parent, self.fields = policy, parent, tuple(fields)
        super().__init__(f"policy {policy!r} allows more than the session's policy {parent!r}")

    def details(self) -> dict[str, object]:
        """The policy, and where it allows more."""
        return {"policy": self.policy, "fields": list(self.fields)}


class ToolFailed(CallerError):
    """A tool answered a client with an error; ``answer`` is its whole answer."""

    def __init__(self, message: str, answer: dict[str, Any]) -> None:
        super().__init__(message)
        self.answer = answer


class DaemonRefused(CallerError):
    """The daemon refuses a client's request; ``usage`` means that an argument is invalid."""

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


class ProcessError(KernelError):
    """A process of ours ended or does not answer."""


class KernelDied(ProcessError):
    """The kernel process ended. ``loss`` is what its session lost; None if no session had begun in it."""

    code = "kernel_died"
    reason: str
    loss: Loss | None

    def __init__(self, reason: str, loss: Loss | None = None) -> None:
        self.reason = reason
        self.loss = loss
        super().__init__(reason if loss is None else f"{reason}; {loss}")

    @property
    def hint(self) -> str:
        """What to do depends on what was lost."""
        if self.loss is not None and self.loss.nothing:
            return "change the code that ended the process, then call eval_code again"
        if self.loss is not None and self.loss.what is Lost.NOTHING:
            return "start the threads that you still need, then call eval_code again"
        if self.loss is not None and self.loss.what is Lost.CELLS:
            return "call eval_code again, first to define what the lost cells defined"
        return _DEFINE_AGAIN


_DEFINE_AGAIN = "call eval_code again: a fresh kernel starts with every loaded context; define lost variables again"


class KernelBusy(ProcessError):
    """The kernel runs a cell; the request needs it idle."""

    code = "busy"
    hint = "wait(run) for the running code, or interrupt it, then call again"


class KernelWaits(KernelBusy):
    """The kernel's cell waits for answers, perhaps from the caller, so the caller must not wait for the cell."""

    hint = "call answer_queries, then call again"


class MachineFull(ProcessError):
    """There is no room for this now. ``resource`` names what is short; nothing has been changed."""

    code = "machine_full"
    resource: str
    detail: str

    def __init__(self, resource: str, detail: str) -> None:
        self.resource = resource
        self.detail = detail
        super().__init__(f"the machine is full: {detail}")

    @property
    def hint(self) -> str:
        """How to make room."""
        more = _ROOM.get(self.resource, "")
        if self.resource == "disk":
            more = f"or free space on the disks of {discovery.state_dir()} and {discovery.runtime_dir()}"
        less = "end unused sessions (`rlm-kernel sessions` lists them; idle ones end by themselves)"
        return f"{less}, {more}; then call again"

    def details(self) -> dict[str, object]:
        """The resource that is short."""
        return {"resource": self.resource}


_ROOM = {
    "sessions": "or raise RLM_KERNEL_MAX_SESSIONS and run `rlm-kernel daemon stop --all`",
    "descriptors": "or raise the limit of open files (`ulimit -n`)",
    "processes": "or raise the limit of processes (`ulimit -u`, or the container's pids limit)",
    "memory": "or unload large variables",
}

SHORT_OF: dict[int | None, str] = {
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes",
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
}


NO_PROCESSES = "the system does not let this user start more processes or threads"


def machine_full(error: BaseException) -> MachineFull | None:
    """Return the `MachineFull` that a system error stands for; None if it is about something else."""
    short = SHORT_OF.get(getattr(error, "errno", None))
    # CPython raises this RuntimeError without an errno, so only its text identifies it.
    if short == "processes" or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return MachineFull("processes", NO_PROCESSES)
    return MachineFull(short, str(error)) if short is not None else None


class SupervisorGone(ProcessError):
    """The supervisor ended, and with it every kernel it held."""

    code = "kernel_died"
    hint = _DEFINE_AGAIN

    def __init__(self, reason: str = "the supervisor ended") -> None:
        super().__init__(f"{reason}; kernel variables are lost, loaded contexts are kept; call again to continue")


class DaemonUnavailable(ProcessError):
    """No daemon answers, and none could be started."""


class DaemonNotStarted(DaemonUnavailable):
    """Starting the daemon failed, or its folders are not usable; the message says what to change."""


class ProtocolError(KernelError):
    """A peer sent bytes that are not a valid message."""


def to_wire(error: BaseException) -> dict[str, object]:
    """Describe an error for another process, which recreates it (`rlm_kernel.failures.from_wire`).

    An error's fields are those that its class declares.
    """
    fields = {name: _plain(getattr(error, name)) for name in wire_fields(type(error))}
    return {"error": type(error).__name__, "message": str(error), **fields}


def _plain(value: object) -> object:
    """Return a field as JSON. `rlm_ipc.messages` could do it, but raises errors of this module."""
    return dataclasses.asdict(value) if isinstance(value, Loss) else value


def wire_fields(kind: type[BaseException]) -> dict[str, type[object]]:
    """Return the fields of a class of errors, with their types."""
    return typing.get_type_hints(kind)
