"""The errors of the memory layer, in one tree whose second level says whose fault it was.

MemoryLayerError
├── CallerError              the request was wrong: change it and call again
│   ├── UnknownSession       no row for that session
│   ├── SessionEnded         the session has ended: nothing can be written for it
│   ├── UnknownContext       the session has no context of that name
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
    ├── StoreUnavailable     locked, full, unreadable or damaged
    └── StoreTooNew          written by a newer version of this program
"""

from __future__ import annotations

from collections.abc import Sequence


class MemoryLayerError(Exception):
    """Base of everything this package raises on purpose."""


class RowRequestError(MemoryLayerError):
    """The request cannot be carried out as asked; the message says what to change."""


class UnknownSession(RowRequestError):
    """No session of that id has a row."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"no session {session!r}; the first call that names it creates it")


class SessionEnded(RowRequestError):
    """The session has ended, so nothing can be written for it. A new session of that name is another one."""

    def __init__(self) -> None:
        super().__init__("the session has ended, so nothing was saved; a new session can use its name")


class UnknownContext(RowRequestError):
    """The session has no context of that name. ``available`` lists the names that it has."""

    def __init__(self, name: str, available: Sequence[str]) -> None:
        self.name = name
        self.available = list(available)
        super().__init__(f"no context {name!r} in this session; load it, or use one of {self.available}")


class UnknownHandle(RowRequestError):
    """The handle does not exist or is not granted to the asking session. The message does not say which."""

    def __init__(self, handle: str) -> None:
        self.handle = handle
        super().__init__(
            f"no handle {handle!r} that this session may resolve; ask its owner to register it again and to name "
            "this session in share_with"
        )


class UnknownQuery(RowRequestError):
    """The session has no query of that id."""

    def __init__(self, query: str, pending: Sequence[str]) -> None:
        self.query = query
        self.pending = list(pending)
        super().__init__(f"no query {query[:80]!r} in this session; pending are: {', '.join(self.pending) or 'none'}")


class QuotaExceeded(RowRequestError):
    """Loading would take the session over its content quota. All numbers are bytes."""

    def __init__(self, session: str, *, used: int, asked: int, limit: int) -> None:
        self.session, self.used, self.asked, self.limit = session, used, asked, limit
        super().__init__(
            f"Session {session} would exceed {megabytes(limit)} limit ({used:,} bytes held, {asked:,} more requested)"
        )


class InvalidTransition(RowRequestError):
    """The state machine of ``noun`` has no step from ``current`` to ``wanted``."""

    def __init__(self, noun: str, key: str, current: str, wanted: str) -> None:
        self.noun, self.key, self.current, self.wanted = noun, key, current, wanted
        why = f"already {current}" if current == wanted else f"{current}, so it cannot become {wanted}"
        super().__init__(f"{noun} {key!r} is {why}")


class UnknownFrame(RowRequestError):
    """There is no frame of that id."""

    def __init__(self, frame: str) -> None:
        self.frame = frame
        super().__init__(f"no frame {frame[:80]!r}; ask for the tree to see the ids that there are")


class FrameStatusRefused(RowRequestError):
    """The status of the frame does not allow what was asked; ``advice`` is what to do first."""

    def __init__(self, frame: str, status: str, verb: str, advice: str) -> None:
        self.frame, self.status, self.verb, self.advice = frame, status, verb, advice
        super().__init__(f"cannot {verb} frame {frame}, which is {status}: {advice}")


class FramesRunning(RowRequestError):
    """The frame cannot end while others work below it. ``running`` lists their ids."""

    def __init__(self, frame: str, running: Sequence[str]) -> None:
        self.frame, self.running = frame, list(running)
        super().__init__(
            f"frames run below {frame}: {', '.join(self.running)}; pop them first, or pass children='adopt' (they "
            "move up to its parent) or children='fail'"
        )


class FrameWaits(RowRequestError):
    """The frame cannot start. ``waiting`` is it or the one above it that waits for the frames ``on``."""

    def __init__(self, frame: str, waiting: str, on: Sequence[str]) -> None:
        self.frame, self.waiting, self.on = frame, waiting, list(on)
        who = frame if frame == waiting else f"{frame} stands below {waiting}, which"
        super().__init__(f"{who} waits for {', '.join(self.on)}: end that first, or remove the edge")


class EdgeRefused(RowRequestError):
    """There can be no such edge from ``frame`` to ``target``; ``reason`` names the circle if there would be one."""

    def __init__(self, frame: str, target: str, reason: str) -> None:
        self.frame, self.target, self.reason = frame, target, reason
        super().__init__(f"{frame} cannot wait for {target} or note it: {reason}")


class NotReady(RowRequestError):
    """The frame cannot be claimed now; ``reason`` says why."""

    def __init__(self, frame: str, reason: str) -> None:
        self.frame, self.reason = frame, reason
        super().__init__(f"{frame} cannot be claimed: {reason}")


class PathTaken(RowRequestError):
    """The frame declares ``path``, on which the holder of the frame ``by`` works."""

    def __init__(self, frame: str, path: str, by: str, holder: str) -> None:
        self.frame, self.path, self.by, self.holder = frame, path, by, holder
        super().__init__(f"{frame} cannot be claimed: {holder} works on {path or 'the whole repository'} for {by}")


class LeaseLost(RowRequestError):
    """A write carries an old fence, or is of somebody who does not hold the frame. ``holder`` says who does."""

    def __init__(self, frame: str, fence: int | None, current: int, holder: str) -> None:
        self.frame, self.fence, self.current, self.holder = frame, fence, current, holder
        yours = "you have not claimed it" if fence is None else f"your claim has fence {fence}"
        super().__init__(f"{holder} has {frame} now, with fence {current}; {yours}: claim another frame")


class StoreFault(MemoryLayerError):
    """The database cannot be used; nothing was changed."""


class StoreUnavailable(StoreFault):
    """The database is locked, full, unreadable or damaged."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        super().__init__(
            f"the database {where} cannot be used: {reason}; free disk space, correct its permissions, or move "
            "the file away to start with an empty database"
        )


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
