"""The errors of the memory layer, in one tree whose second level says whose fault it was.

What a tool answers stands at the class: ``code``, what to do next as ``hint``, and further fields as `details`.

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
│   ├── EdgeRefused          such an edge cannot be between these frames
│   ├── NotReady             the frame cannot be claimed now
│   ├── PathTaken            somebody works on a path that the frame declares
│   └── LeaseLost            another one holds the frame, or has held it since
└── StoreFault               the database cannot be used
    ├── StoreUnavailable     locked, unreadable or damaged
    │   └── DiskFull         there is no room for what it would write
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
    """Base of everything this package raises on purpose."""

    code = "refused"

    @property
    def hint(self) -> str:
        """What to do next."""
        return "change the request as the message says and call again"

    def details(self) -> dict[str, object]:
        """What else helps whoever gets the answer."""
        return {}


class RowRequestError(MemoryLayerError):
    """The request cannot be carried out as asked; the message says what to change."""


class UnknownSession(RowRequestError):
    """No session of that id has a row."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"no session {session!r}; the first call that names it creates it")


class SessionEnded(RowRequestError):
    """The session has ended, so nothing can be written for it. A new session of that name is another one."""

    code = "session_ended"
    hint = "call again to start a new, empty session of that name"

    def __init__(self) -> None:
        super().__init__("the session has ended, so nothing was saved; a new session can use its name")


class UnknownHandle(RowRequestError):
    """The handle does not exist or is not granted to the asking session. The message does not say which."""

    code = "handle_not_found"
    hint = "ask the owning session to call register_handle again and to name this session in share_with"

    def __init__(self, handle: str) -> None:
        self.handle = handle
        super().__init__(f"no handle {handle[:80]!r} that this session may resolve")

    def details(self) -> dict[str, object]:
        """The handle."""
        return {"handle": self.handle[:80]}


class UnknownQuery(RowRequestError):
    """The session has no query of that id."""

    code = "query_not_found"
    hint = "use the ids in pending_llm_queries"

    def __init__(self, query: str, pending: Sequence[str]) -> None:
        self.query = query
        self.pending = list(pending)
        super().__init__(f"no query {query[:80]!r} in this session; pending are: {', '.join(self.pending) or 'none'}")

    def details(self) -> dict[str, object]:
        """The id that was asked for, and those that wait."""
        return {"id": self.query[:80], "pending": self.pending}


class QuotaExceeded(RowRequestError):
    """Loading would take the session over its content quota. All numbers are bytes."""

    code = "quota_exceeded"
    hint = "unload texts that are no longer needed, load a part, or use a policy with larger limits.content_bytes"

    def __init__(self, session: str, *, used: int, asked: int, limit: int) -> None:
        self.session, self.used, self.asked, self.limit = session, used, asked, limit
        super().__init__(
            f"Session {session} would exceed {megabytes(limit)} limit ({used:,} bytes held, {asked:,} more requested)"
        )

    def details(self) -> dict[str, object]:
        """What is held, and how much may be."""
        return {"used_bytes": self.used, "limit_bytes": self.limit}


class InvalidTransition(RowRequestError):
    """The state machine of ``noun`` has no step from ``current`` to ``wanted``."""

    code = "already_resolved"
    hint = "nothing is left to do"

    def __init__(self, noun: str, key: str, current: str, wanted: str) -> None:
        self.noun, self.key, self.current, self.wanted = noun, key, current, wanted
        why = f"already {current}" if current == wanted else f"{current}, so it cannot become {wanted}"
        super().__init__(f"{noun} {key!r} is {why}")

    def details(self) -> dict[str, object]:
        """Which one, and its state."""
        return {"id": self.key, "state": self.current}


class UnknownFrame(RowRequestError):
    """There is no frame of that id."""

    code = "frame_not_found"
    hint = "call frame to see the tree"

    def __init__(self, frame: str) -> None:
        self.frame = frame
        super().__init__(f"no frame {frame[:80]!r}; the tree shows the ids")

    def details(self) -> dict[str, object]:
        """The id that was asked for."""
        return {"frame": self.frame[:80]}


class FrameStatusRefused(RowRequestError):
    """The status of the frame does not allow what was asked; ``hint`` is what to do first."""

    code = "frame_status"
    hint = ""

    def __init__(self, frame: str, status: str, verb: str, hint: str) -> None:
        self.frame, self.status, self.verb, self.hint = frame, status, verb, hint
        super().__init__(f"cannot {verb} frame {frame}, which is {status}: {hint}")

    def details(self) -> dict[str, object]:
        """Which one, and its status."""
        return {"frame": self.frame, "status": self.status}


class FramesRunning(RowRequestError):
    """The frame cannot end while others work below it. ``running`` lists their ids."""

    code = "frames_running"
    hint = "pop them first, or pass children='adopt' (they move up to its parent) or children='fail'"

    def __init__(self, frame: str, running: Sequence[str]) -> None:
        self.frame, self.running = frame, list(running)
        super().__init__(f"frames run below {frame}: {', '.join(self.running)}; {self.hint}")

    def details(self) -> dict[str, object]:
        """Which one, and those below it."""
        return {"frame": self.frame, "running": self.running}


class FrameWaits(RowRequestError):
    """The frame cannot start. ``waiting`` is it or the one above it that waits for the frames ``on``."""

    code = "frame_waits"
    hint = "work(do='next') shows what can be done"

    def __init__(self, frame: str, waiting: str, on: Sequence[str]) -> None:
        self.frame, self.waiting, self.on = frame, waiting, list(on)
        who = frame if frame == waiting else f"{frame} stands below {waiting}, which"
        super().__init__(f"{who} waits for {', '.join(self.on)}: end that first, or remove the edge")

    def details(self) -> dict[str, object]:
        """Which one, and what it waits for."""
        return {"frame": self.frame, "on": self.on}


class EdgeRefused(RowRequestError):
    """There can be no such edge from ``frame`` to ``target``; ``reason`` names the circle if there would be one."""

    def __init__(self, frame: str, target: str, reason: str) -> None:
        self.frame, self.target, self.reason = frame, target, reason
        super().__init__(f"{frame} cannot wait for {target} or note it: {reason}")


class NotReady(RowRequestError):
    """The frame cannot be claimed now; ``reason`` says why."""

    code = "not_ready"
    hint = "work(do='next') shows what can be claimed"

    def __init__(self, frame: str, reason: str) -> None:
        self.frame, self.reason = frame, reason
        super().__init__(f"{frame} cannot be claimed: {reason}")

    def details(self) -> dict[str, object]:
        """Which one."""
        return {"frame": self.frame}


class PathTaken(RowRequestError):
    """The frame declares ``path``, on which the holder of the frame ``by`` works."""

    code = "path_taken"
    hint = "claim another task, or wait until that one is done"

    def __init__(self, frame: str, path: str, by: str, holder: str) -> None:
        self.frame, self.path, self.by, self.holder = frame, path, by, holder
        super().__init__(f"{frame} cannot be claimed: {holder} works on {path or 'the whole repository'} for {by}")

    def details(self) -> dict[str, object]:
        """Which one, the path, and whose that is."""
        return {"frame": self.frame, "path": self.path, "by": self.by, "holder": self.holder}


class LeaseLost(RowRequestError):
    """A write carries an old fence, or is of somebody who does not hold the frame. ``holder`` says who does."""

    code = "lease_lost"
    hint = (
        "stop working on it; work(do='claim') gives you another task. If you claimed this one for a process or a time, "
        "name the same holder: `--pid`, or `--lease` with the token of that claim"
    )

    def __init__(self, frame: str, fence: int | None, current: int, holder: str) -> None:
        self.frame, self.fence, self.current, self.holder = frame, fence, current, holder
        yours = "you have not claimed it" if fence is None else f"your claim has fence {fence}"
        super().__init__(f"{holder} has {frame} now, with fence {current}; {yours}")

    def details(self) -> dict[str, object]:
        """Which one, and whose it is by which fence."""
        return {"frame": self.frame, "fence": self.current, "holder": self.holder}


class StoreFault(MemoryLayerError):
    """The database cannot be used; nothing was changed."""

    code = "store_unavailable"
    hint = "run `rlm-kernel doctor`"


class StoreUnavailable(StoreFault):
    """The database is locked, unreadable or damaged."""

    def __init__(self, where: str, reason: str, mend: str = "") -> None:
        self.where = where
        mend = mend or "correct its permissions, or move the file away to start with an empty database"
        super().__init__(f"the database {where} cannot be used: {reason}; {mend}")


class DiskFull(StoreUnavailable):
    """The disk of the database is full."""

    def __init__(self, where: str) -> None:
        super().__init__(where, "its disk is full", "free space on that disk")


def fault(where: str, error: BaseException) -> StoreUnavailable:
    """What an error of the driver or of the system says of the database."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    full = code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    if full or (code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(where)):
        return DiskFull(where)
    return StoreUnavailable(where, getattr(error, "strerror", None) or str(error))


def _is_full(where: str) -> bool:
    """Whether there is no room beside a file: SQLite does not say so of all that it makes there."""
    try:
        found = os.statvfs(os.path.dirname(where))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LITTLE


class StoreTooNew(StoreFault):
    """The database was written by a newer version of this program."""

    def __init__(self, where: str, found: int, known: int) -> None:
        super().__init__(
            f"the database {where} has version {found}, but this program supports only {known}; update rlm-kernel, or "
            "set RLM_KERNEL_STATE_DIR to another folder"
        )


def megabytes(size: int) -> str:
    """Render ``size`` bytes as the quota message does: whole binary megabytes, else bytes."""
    whole, rest = divmod(size, 1024 * 1024)
    return f"{whole}MB" if whole and not rest else f"{size:,} bytes"
