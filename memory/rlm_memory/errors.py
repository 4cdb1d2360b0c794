"""The errors of the memory layer, in one tree whose second level says whose fault it was.

Each class defines what a tool answers: ``code``, ``hint`` (what to do next), and further fields as `details`.

MemoryLayerError
├── CallerError              the request was wrong: change it and call again
│   ├── UnknownSession       no row for that session
│   ├── SessionEnded         the session has ended: nothing can be written for it
│   ├── UnknownHandle        no such handle, or this session may not resolve it
│   ├── UnknownQuery         the session never asked that query
│   ├── QuotaExceeded        the session would hold more bytes than its policy allows
│   ├── InvalidTransition    the row's state does not allow that step
│   ├── UnknownFrame         no such frame
│   ├── FrameStatusRefused   the frame's status does not allow that verb
│   ├── FramesRunning        others work below the frame
│   ├── FrameWaits           the frame, or one above it, waits for others
│   ├── EdgeRefused          there can be no such edge between these frames
│   ├── NotReady             the frame cannot be claimed now
│   ├── PathTaken            someone works on a path that the frame declares
│   └── LeaseLost            someone else holds the frame, or has held it since
└── StoreFault               the database cannot be used
    ├── StoreUnavailable     locked, unreadable or damaged
    │   └── DiskFull         there is no room for what it would write
    ├── StoreTooOld          written by a version before the first release
    └── StoreTooNew          written by a newer version of this program
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence

_LITTLE = 64 << 10
"""Bytes below which a disk counts as full."""


class MemoryLayerError(Exception):
    """Base of every error that this package raises on purpose."""

    code = "refused"

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self._details = details

    @property
    def hint(self) -> str:
        """What to do next; empty if the message says it."""
        return ""

    def details(self) -> dict[str, object]:
        """Further fields of the answer that may help its reader."""
        return self._details


class RowRequestError(MemoryLayerError):
    """The request cannot be carried out as asked; the message says what to change."""


class UnknownSession(RowRequestError):
    """No session with that id has a row."""

    def __init__(self, session: str) -> None:
        super().__init__(f"no session {session!r}; the first call that names it creates it")


class SessionEnded(RowRequestError):
    """The session has ended, so nothing can be written for it.

    A later session with the same name is a different one.
    """

    code = "session_ended"
    hint = "call again to start a new, empty session of that name"

    def __init__(self) -> None:
        super().__init__("the session has ended, so nothing was saved; a new session can use its name")


class UnknownHandle(RowRequestError):
    """The handle does not exist or is not granted to the asking session. The message does not say which."""

    code = "handle_not_found"
    hint = "ask the owning session to call register_handle again and to name this session in share_with"

    def __init__(self, handle: str) -> None:
        super().__init__(f"there is no handle {handle[:80]!r} that this session may resolve", handle=handle[:80])


class UnknownQuery(RowRequestError):
    """The session has no query with that id."""

    code = "query_not_found"
    hint = "still_pending lists the queries that can be answered"

    def __init__(self, query: str) -> None:
        super().__init__(f"there is no query {query[:80]!r} in this session", id=query[:80])


class QuotaExceeded(RowRequestError):
    """Loading would take the session over its content quota. All numbers are bytes."""

    code = "quota_exceeded"
    hint = "unload texts that you no longer need, load a part, or use a policy with a larger limits.content_bytes"

    def __init__(self, session: str, *, used: int, asked: int, limit: int) -> None:
        said = f"would exceed {megabytes(limit)} limit ({used:,} bytes held, {asked:,} more requested)"
        super().__init__(f"Session {session} {said}", used_bytes=used, limit_bytes=limit)


class InvalidTransition(RowRequestError):
    """``noun`` cannot go from the state ``current`` to ``wanted``."""

    code = "already_resolved"
    hint = "nothing else needs to be done"

    def __init__(self, noun: str, key: str, current: str, wanted: str) -> None:
        why = f"already {current}" if current == wanted else f"{current}, so it cannot become {wanted}"
        super().__init__(f"{noun} {key!r} is {why}", id=key, state=current)


class UnknownFrame(RowRequestError):
    """There is no frame with that id."""

    code = "frame_not_found"
    hint = "the tool frame and `rlm-kernel tree` show the ids"

    def __init__(self, frame: str) -> None:
        super().__init__(f"no frame {frame[:80]!r}", frame=frame[:80])


class FrameStatusRefused(RowRequestError):
    """The status of the frame does not allow the request; ``hint`` says what to do first."""

    code = "frame_status"
    hint = ""

    def __init__(self, frame: str, status: str, verb: str, hint: str) -> None:
        self.hint = hint
        super().__init__(f"cannot {verb} frame {frame}, which is {status}", frame=frame, status=status)


class FramesRunning(RowRequestError):
    """The frame cannot end while others work below it. ``running`` lists their ids."""

    code = "frames_running"
    hint = "pop them first, or pass children='adopt' (they move up to its parent) or children='fail'"

    def __init__(self, frame: str, running: Sequence[str]) -> None:
        super().__init__(f"frames run below {frame}: {', '.join(running)}", frame=frame, running=list(running))


class FrameWaits(RowRequestError):
    """The frame cannot start. ``waiting`` is the frame, or the one above it, that waits for the frames ``on``."""

    code = "frame_waits"
    hint = "work(do='next') shows what can be done"

    def __init__(self, frame: str, waiting: str, on: Sequence[str]) -> None:
        who = frame if frame == waiting else f"{frame} stands below {waiting}, which"
        said = f"{who} waits for {', '.join(on)}: end that first, or remove the edge"
        super().__init__(said, frame=frame, on=list(on))


class EdgeRefused(RowRequestError):
    """There can be no such edge from ``frame`` to ``target``; ``reason`` names the cycle if there would be one."""

    def __init__(self, frame: str, target: str, reason: str) -> None:
        super().__init__(f"{frame} cannot wait for {target} or note it: {reason}")


class NotReady(RowRequestError):
    """The frame cannot be claimed now; ``reason`` says why."""

    code = "not_ready"
    hint = "work(do='next') shows what can be claimed"

    def __init__(self, frame: str, reason: str) -> None:
        super().__init__(f"{frame} cannot be claimed: {reason}", frame=frame)


class PathTaken(RowRequestError):
    """The frame declares ``path``, and the holder of the frame ``by`` works on it."""

    code = "path_taken"
    hint = "claim another task, or wait until that one is done"

    def __init__(self, frame: str, path: str, by: str, holder: str) -> None:
        said = f"{frame} cannot be claimed: {holder} works on {path or 'the whole repository'} for {by}"
        super().__init__(said, frame=frame, path=path, by=by, holder=holder)


class LeaseLost(RowRequestError):
    """A write carries an old fence, or comes from someone who does not hold the frame. ``holder`` says who does."""

    code = "lease_lost"
    hint = (
        "stop working on it; work(do='claim') gives you another task. If you claimed this one in a shell for a process "
        "or a time, name the same holder there: `--pid`, or `--lease` with the token of that claim"
    )

    def __init__(self, frame: str, fence: int | None, current: int, holder: str) -> None:
        yours = "you have not claimed it" if fence is None else f"your claim has fence {fence}"
        said = f"{holder} has {frame} now, with fence {current}; {yours}"
        super().__init__(said, frame=frame, fence=current, holder=holder)


class StoreFault(MemoryLayerError):
    """The database cannot be used; nothing was changed."""

    code = "store_unavailable"
    hint = "run `rlm-kernel doctor`"


class StoreUnavailable(StoreFault):
    """The database is locked, unreadable or damaged."""

    def __init__(self, where: str, reason: str, remedy: str = "") -> None:
        remedy = remedy or "correct its permissions, or move the file away to start with an empty database"
        super().__init__(f"the database {where} cannot be used: {reason}; {remedy}")


class DiskFull(StoreUnavailable):
    """The disk of the database is full."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "its disk is full", "free space on that disk")


def fault(where: str, error: BaseException) -> StoreUnavailable:
    """Translate an error of the driver or the system into a fault of the database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(where)):
        return DiskFull(where)
    return StoreUnavailable(where, getattr(error, "strerror", None) or str(error))


def _is_full(where: str) -> bool:
    """Whether the disk of a file is full: SQLite does not report that for every file that it creates there."""
    try:
        found = os.statvfs(os.path.dirname(where))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE


class StoreTooOld(StoreFault):
    """The database was written by a version of this program from before the first release, or by another program."""

    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"the database {where} has version {found}, but this program supports only {known}; move the file aside to "
            "start with an empty database, or use the version that wrote it"
        )


class StoreTooNew(StoreFault):
    """The database was written by a newer version of this program."""

    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"the database {where} has version {found}, but this program supports only {known}; update rlm-kernel, or "
            "set RLM_KERNEL_STATE_DIR to another folder"
        )


def megabytes(size: int) -> str:
    """Render ``size`` bytes as the quota message does: as whole binary megabytes, otherwise in bytes."""
    whole, rest = divmod(size, 1024 * 1024)
    return f"{whole}MB" if whole and not rest else f"{size:,} bytes"
