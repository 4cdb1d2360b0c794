"""What a client may ask about attachments, and what the daemon replies; `daemon_protocol` has the table."""

from __future__ import annotations

import enum

from rlm_ipc.daemon_requests import Request
from rlm_ipc.late_dataclasses import dataclass


class AttachmentKind(enum.StrEnum):
    """What a front end may do through an attachment: look, run cells, or run plain Python in a copy of the session."""

    WATCH = "watch"
    EXECUTE = "execute"
    TRUSTED = "trusted"


@dataclass(frozen=True, slots=True)
class AttachmentInfo:
    """An attachment, and how many front ends have it ``open``."""

    attachment: str
    session: str
    mode: AttachmentKind
    open: int
    revoked: bool
    kernelspec: str
    created: str


@dataclass(frozen=True, slots=True)
class ListAttachments(Request["AttachmentList"]):
    """List the attachments of all open sessions."""


@dataclass(frozen=True, slots=True)
class AttachmentList:
    """The attachments."""

    attachments: tuple[AttachmentInfo, ...]


@dataclass(frozen=True, slots=True)
class AddAttachment(Request["AttachmentInfo"]):
    """Return the session's attachment of that mode, created if there is none."""

    session: str
    mode: AttachmentKind


@dataclass(frozen=True, slots=True)
class RevokeAttachment(Request["AttachmentRevoked"]):
    """End an attachment for good."""

    attachment: str


@dataclass(frozen=True, slots=True)
class AttachmentRevoked:
    """The revoked attachment, its session, and how many front ends were disconnected."""

    revoked: str
    session: str
    closed: int


@dataclass(frozen=True, slots=True)
class EnterAttachment(Request["AttachmentOpened"]):
    """Admit a front end that shows the ``key`` of an attachment."""

    attachment: str
    key: str


@dataclass(frozen=True, slots=True)
class AttachmentOpened:
    """The kernel to ask the supervisor for, and the name of the attachment there.

    The front end either only ``watches``, or owns the kernel, which then ends with it.
    """

    kernel_id: str
    attachment: str
    watches: bool = False
    owned: bool = False
