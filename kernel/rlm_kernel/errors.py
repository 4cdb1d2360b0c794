"""The errors of the kernel layer, in one tree whose second level says whose fault it was.

KernelError
├── CallerError              the request was wrong: change it and call again
│   ├── UnknownKernel        no such kernel: it ended, or never was
│   ├── SessionExpelled      the kernel was ended for what its code has tried
│   ├── UnknownVariable      no global of that name in the kernel
│   ├── WallsMissing         the policy requires walls that this system cannot raise
│   ├── PolicyLooser         a forked session may not do more than the one it comes from
│   ├── ToolFailed           a tool answered a client with an error
│   └── DaemonRefused        the daemon does not take a client's request
├── ProcessError             a process of ours ended or does not answer
│   ├── KernelDied           the kernel process; says what was lost
│   ├── KernelBusy           the kernel runs a cell and the request cannot wait
│   ├── MachineFull          no room for it now: memory, processes, descriptors, sessions or disk
│   ├── HostGone             the kernel host; every kernel of it is gone
│   └── DaemonUnavailable    no daemon answers and none could be started
└── ProtocolError            a peer sent bytes that are no message of ours (hostile, or of another version)
"""

from __future__ import annotations

import errno
from typing import Any

from rlm_kernel.contexts import errors as contexts
from rlm_kernel.contexts.errors import ContextError


class KernelError(Exception):
    """Base of everything this package raises on purpose."""


class CallerError(KernelError):
    """The request cannot be carried out as asked; the message says what to change."""


class UnknownKernel(CallerError):
    """No kernel of that id is alive in the host."""

    def __init__(self, kernel_id: str) -> None:
        self.kernel_id = kernel_id
        super().__init__(f"no kernel {kernel_id!r} is running; start one (its session spawns one on the next call)")


class SessionExpelled(CallerError):
    """The kernel and its session were ended because of what code in it has tried."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the session was ended: {reason}")


class UnknownVariable(CallerError):
    """The kernel has no global of that name."""

    def __init__(self, name: str, available: list[str] | None = None) -> None:
        self.name = name
        self.available = available or []
        super().__init__(f"no variable {name!r} in this session; list the variables to see what there is")


class WallsMissing(CallerError):
    """The policy requires walls that do not stand here, so the kernel was not started."""

    def __init__(self, missing: list[str]) -> None:
        self.missing = missing
        super().__init__(
            f"the policy requires walls that this system cannot raise: {', '.join(missing)}; "
            "run `rlm-kernel doctor` to see why, or choose a policy that does not require them"
        )


class PolicyLooser(CallerError):
    """The policy of a forked session allows more than its parent's. ``fields`` are the policy's fields that do."""

    def __init__(self, policy: str, parent: str, fields: list[str]) -> None:
        self.policy, self.parent, self.fields = policy, parent, fields
        super().__init__(
            f"policy {policy!r} allows more than {parent!r}, under which the session runs: {'; '.join(fields)}"
        )


class ToolFailed(CallerError):
    """A tool answered a client with an error; ``answer`` is the whole of its answer."""

    def __init__(self, message: str, answer: dict[str, Any]) -> None:
        super().__init__(message)
        self.answer = answer


class DaemonRefused(CallerError):
    """The daemon does not take a client's request; ``usage`` says that an argument of it is none."""

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


class ProcessError(KernelError):
    """A process of ours ended or does not answer."""


class KernelDied(ProcessError):
    """The kernel process ended. ``lost`` says in words what cannot be used any more."""

    def __init__(self, reason: str, lost: str) -> None:
        self.reason = reason
        self.lost = lost
        super().__init__(f"{reason}; {lost}")


class KernelBusy(ProcessError):
    """The kernel runs a cell; the request needs it idle."""


class MachineFull(ProcessError):
    """There is no room for it now. ``resource`` is what there is too little of; nothing has been changed."""

    def __init__(self, resource: str, detail: str) -> None:
        self.resource = resource
        self.detail = detail
        super().__init__(f"there is no room for it: {detail}")


SHORT_OF: dict[int | None, str] = {
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes",
    errno.ENOSPC: "disk",
    errno.EDQUOT: "disk",
}


NO_PROCESSES = "the system lets this user start no more processes or threads"


def machine_full(error: BaseException) -> MachineFull | None:
    """What an error of the system says there is too little of; None if it says something else."""
    short = SHORT_OF.get(getattr(error, "errno", None))
    if short == "processes" or (isinstance(error, RuntimeError) and "start new thread" in str(error)):
        return MachineFull("processes", NO_PROCESSES)
    return MachineFull(short, str(error)) if short is not None else None


class HostGone(ProcessError):
    """The kernel host ended, and with it every kernel it held."""

    def __init__(self, reason: str = "the kernel host ended") -> None:
        super().__init__(f"{reason}; kernel variables are lost, loaded contexts are kept; call again to go on")


class DaemonUnavailable(ProcessError):
    """No daemon answers, and none could be started."""


class ProtocolError(KernelError):
    """A peer sent bytes that are no message of ours."""


BY_NAME: dict[str, type[KernelError]] = {
    cls.__name__: cls for cls in (CallerError, ProcessError, KernelBusy, ProtocolError, KernelError)
}


ABOUT_CONTEXTS: dict[str, type[ContextError]] = {
    cls.__name__: cls for cls in (contexts.InvalidRegex, contexts.ScanTimeout, contexts.CorruptText)
}


_ATTRIBUTES_ABOUT_CONTEXTS = {"pattern", "reason", "position", "seconds", "matches", "next_line"}


def to_wire(error: BaseException) -> dict[str, object]:
    """What the host sends about an error; `from_wire` makes the same error of it again."""
    extra = {name: value for name, value in vars(error).items() if isinstance(value, str | int | float | list | None)}
    return {"error": type(error).__name__, "message": str(error), **extra}


def from_wire(data: dict[str, object]) -> KernelError | ContextError:
    """The error that `to_wire` described; an unknown kind becomes a plain KernelError."""
    name, message = str(data.get("error")), str(data.get("message"))
    if name == "UnknownKernel":
        return UnknownKernel(str(data.get("kernel_id")))
    if name == "SessionExpelled":
        return SessionExpelled(str(data.get("reason")))
    if name == "UnknownVariable":
        available = data.get("available")
        return UnknownVariable(str(data.get("name")), list(available) if isinstance(available, list) else None)
    if name == "WallsMissing":
        missing = data.get("missing")
        return WallsMissing([str(m) for m in missing] if isinstance(missing, list) else [])
    if name == "PolicyLooser":
        fields = data.get("fields")
        texts = [str(field) for field in fields] if isinstance(fields, list) else []
        return PolicyLooser(str(data.get("policy")), str(data.get("parent")), texts)
    if name == "KernelDied":
        return KernelDied(str(data.get("reason")), str(data.get("lost")))
    if name == "MachineFull":
        return MachineFull(str(data.get("resource")), str(data.get("detail")))
    if name in ABOUT_CONTEXTS:
        return _about_context(ABOUT_CONTEXTS[name], message, data)
    return BY_NAME.get(name, KernelError)(message)


def _about_context(kind: type[ContextError], message: str, data: dict[str, object]) -> ContextError:
    """An error of the context package, with its attributes; its constructor would make the message anew."""
    made = kind.__new__(kind)
    made.args = (message,)
    for name in _ATTRIBUTES_ABOUT_CONTEXTS & data.keys():  # and no other: it may come from a kernel
        setattr(made, name, data[name])
    return made
